// Command segno puts an MCP server on the network and makes its streams survive
// a broken connection.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], system{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), getenv: os.Getenv,
	}))
}
