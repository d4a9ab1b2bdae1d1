package segno_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/segno-mcp/segno"
)

// A server of the official SDK, put on the network by Segno. The connection
// breaks while its tool works; the client comes back by itself, and nothing is
// missing and nothing there twice.
func Example() {
	halfway, cut := make(chan bool), make(chan bool)
	export := mcp.NewServer(&mcp.Implementation{Name: "export", Version: "1.0"}, nil)
	mcp.AddTool(export, &mcp.Tool{Name: "export"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		for percent := 25; percent <= 100; percent += 25 {
			if percent == 75 {
				halfway <- true
				<-cut
			}
			req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(percent),
			})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "exported"}}}, nil, nil
	})

	server, err := segno.New(segno.Func("export", func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		return export.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	}), segno.Options{Retry: 50 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(context.Background())
	web := httptest.NewServer(server)
	defer web.Close()

	seen := make(chan float64, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { seen <- req.Params.Progress },
	})
	session, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: web.URL + "/mcp"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	go func() {
		<-halfway
		web.CloseClientConnections() // the Wi-Fi goes
		cut <- true
	}()
	call := &mcp.CallToolParams{Name: "export", Arguments: struct{}{}}
	call.SetProgressToken("progress")
	result, err := session.CallTool(context.Background(), call)
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		fmt.Println(<-seen, "percent")
	}
	fmt.Println(result.Content[0].(*mcp.TextContent).Text)
	// Output:
	// 25 percent
	// 50 percent
	// 75 percent
	// 100 percent
	// exported
}
