package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/segno-mcp/segno/internal/example"
)

type exampleCommand struct{}

func (exampleCommand) Help() string {
	return `Example:

  segno serve -- segno example-server`
}

// Run speaks MCP over stdio until the input ends.
func (exampleCommand) Run(ctx context.Context, sys system) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return example.Serve(ctx, sys.in, sys.out)
}
