package streamable

import (
	"context"
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
)

// whyDetached is not an end: the stream goes on without the HTTP server.
const whyDetached = "detached"

// line is the connection of an HTTP/1.1 answer that the server has let go. A
// session's own stream waits for most of its life, and the server's buffers,
// its stack and the request would wait with it: 30 KiB where 10 do. The
// client was told that the connection ends with the answer.
type line struct {
	conn    net.Conn
	timeout time.Duration
}

// detaches tells whether the stream will leave the server when it first waits.
// A call's stream does not: its connection is worth keeping for the next call.
func (v *view) detaches() bool {
	return v.line == nil && v.rd.Own() && v.x.r.ProtoMajor == 1 && v.x.r.ProtoAtLeast(1, 1)
}

// detach takes the connection from the server. It is false where that does not
// work; then the stream stays where it is.
func (v *view) detach() bool {
	if v.line != nil || v.x.w.Header().Get("Connection") != "close" {
		return false
	}
	conn, _, err := v.x.rc.Hijack()
	if err != nil {
		v.x.w.Header().Del("Connection") // it is not asked again
		return false
	}
	v.line = &line{conn: conn, timeout: v.x.f.o.WriteTimeout}
	v.guard.by(conn.SetWriteDeadline)
	mine := *v.x
	v.x.v = nil // this exchange is over
	mine.w, mine.rc, mine.r = nil, nil, nil
	v.x = &mine
	ctx, cancel := context.WithCancel(context.Background())
	v.ctx = ctx
	go v.alone(cancel)
	return true
}

// alone is the rest of a detached stream's life.
func (v *view) alone(cancel context.CancelFunc) {
	clean := false
	defer v.hangUp(&clean)
	go v.line.listen(cancel)
	why := v.run()
	clean = why != whyClient && why != whyTimeout && why != whyFailed && v.guard.wasCut() == ""
	v.report(why)
}

// hangUp ends the connection; what panicked takes no other stream with it.
func (v *view) hangUp(clean *bool) {
	if p := recover(); p != nil {
		v.x.f.meter.Add(metric.Errors, "panic", 1)
		v.x.log().Error("a stream panicked", "panic", p, "stack", string(debug.Stack()))
		v.report(whyFailed)
	}
	v.line.close(&v.guard, *clean)
	<-v.ctx.Done()
	v.close()
}

// listen notices that the client is gone. It has nothing more to say.
func (l *line) listen(gone context.CancelFunc) {
	defer gone()
	var b [1]byte
	for {
		if _, err := l.conn.Read(b[:]); err != nil {
			return
		}
	}
}

// send writes chunks (RFC 9112, 7.1), each with a deadline of its own.
func (l *line) send(f *Front, g *guard, b []byte) error {
	limit := f.limit(len(b))
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := l.chunk(f, g, b[:n], f.deadline(limit)); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (l *line) chunk(f *Front, g *guard, b []byte, until time.Time) error {
	p := f.page()
	defer f.giveBack(p)
	p.b = strconv.AppendInt(p.b, int64(len(b)), 16)
	p.b = append(p.b, "\r\n"...)
	p.b = append(p.b, b...)
	p.b = append(p.b, "\r\n"...)
	return l.write(g, p.b, until)
}

func (l *line) write(g *guard, b []byte, until time.Time) error {
	if err := g.until(until); err != nil {
		return err
	}
	_, err := l.conn.Write(b)
	return err
}

// close ends the answer, cleanly only if it is whole.
func (l *line) close(g *guard, clean bool) {
	if clean && l.write(g, []byte("0\r\n\r\n"), time.Now().Add(l.timeout)) != nil {
		clean = false
	}
	// Nothing is left to be lost that the client was to have.
	_ = l.conn.Close()
}
