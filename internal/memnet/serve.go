package memnet

import (
	"net/http"
	"testing"
)

// Serve runs a handler on a network in memory until the test ends, and returns
// the network and a client whose every URL leads to it. To change the server or
// the network first, make them yourself and use Run.
func Serve(t testing.TB, h http.Handler) (*Net, *http.Client) {
	n := Listen()
	return n, Run(t, n, &http.Server{Handler: h})
}

// Run serves on the network until the test ends and returns a client for it.
// At the end connections that are still open are cut.
func Run(t testing.TB, n *Net, s *http.Server) *http.Client {
	done := make(chan error, 1)
	go func() { done <- s.Serve(n) }()
	client := n.Client()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		s.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("serving: %v", err)
		}
		n.Cut()
	})
	return client
}

// Client is a new client whose every URL leads to the network.
func (n *Net) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.Dial}}
}
