package wire

import "testing"

var progressLine = []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":17,"progress":1234,"total":10000,"message":"exported 1234 rows of the table customers into the file"}}`)

var toolCall = []byte(`{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"export","arguments":{"rows":10000,"filter":"a \"quoted\" one"},"_meta":{"progressToken":"abc"}}}`)

func BenchmarkParseProgress(b *testing.B) {
	b.SetBytes(int64(len(progressLine)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(progressLine); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseCall(b *testing.B) {
	b.SetBytes(int64(len(toolCall)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(toolCall); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseLargeResult(b *testing.B) {
	text := []byte(`{"jsonrpc":"2.0","id":42,"result":{"content":[{"type":"text","text":"`)
	for len(text) < 1<<20 {
		text = append(text, `a line of some text that a tool has read from a file\n`...)
	}
	text = append(text, `"}]}}`...)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFindToken(b *testing.B) {
	m, _ := Parse(progressLine)
	b.ReportAllocs()
	for b.Loop() {
		if s, err := m.Find("params", "progressToken"); err != nil || !s.Ok() {
			b.Fatal(err)
		}
	}
}
