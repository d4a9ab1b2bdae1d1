package main

import "github.com/segno-mcp/segno/bench/report"

const (
	inMemory = "segno memory"
	onDisk   = "segno pebble"
)

// targets are what Segno has to reach, as ratios in one run wherever another
// subject does the same work.
var targets = []report.Target{
	{Measurement: "events", Subject: inMemory, Figure: perSecond, To: base, AtLeast: 0.5},
	{Measurement: "events", Subject: onDisk, Figure: perSecond, To: base, AtLeast: 0.25},
	{Measurement: "calls", Subject: inMemory, Figure: callsPerSecond, To: base, AtLeast: 0.6},
	{Measurement: "calls", Subject: onDisk, Figure: callsPerSecond, To: base, AtLeast: 0.4},
	{Measurement: "calls-in-one", Subject: inMemory, Figure: callsPerSecond, To: base, AtLeast: 0.6},
	{Measurement: "calls-in-one", Subject: onDisk, Figure: callsPerSecond, To: base, AtLeast: 0.4},
	{Measurement: "latency-call", Subject: inMemory, Figure: p50, To: base, Above: "stdio", AtMost: 1.5},
	{Measurement: "latency-event", Subject: inMemory, Figure: p50, To: base, Above: "stdio", AtMost: 1.5},
	{Measurement: "memory-idle", Subject: inMemory, Figure: perStream, AtMost: 20},
	{Measurement: "memory-asleep", Subject: onDisk, Figure: perIdle, AtMost: 10},
	{Measurement: "memory-asleep", Subject: inMemory, Figure: perIdle, AtMost: 10},
	{Measurement: "resume", Subject: inMemory, Figure: resumeMS, To: "http.FileServer", AtMost: 10},
	{Measurement: "resume", Subject: onDisk, Figure: resumeMS, To: "http.FileServer", AtMost: 10},
	{Measurement: "stalled-reader", Subject: inMemory, Figure: peakMB, AtMost: 10},
	{Measurement: "stalled-reader", Subject: onDisk, Figure: peakMB, AtMost: 10},
}
