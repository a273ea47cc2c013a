//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// crowd is how many pods there are: enough that a client which does not read is
	// felt after some seconds.
	crowd = 160
	// crowdPath watches them all.
	crowdPath = "/apis/metrics.k8s.io/v1/namespaces/" + workloads + "/pods?watch=true"
	// crowdPause is longer than any other client may wait for its next data point,
	// with scrapes each second.
	crowdPause = 15 * time.Second
	// badClients are far more than the goroutines and files that may come and go: of
	// watches that share a connection, each is one goroutine.
	badClients = 50
)

// startCrowd runs pods on one kubelet, each with the labels app=web and pair, the
// value of which it shares with another one.
func startCrowd(t *testing.T, node string) {
	t.Helper()
	kubelet := cluster.startNode(t, node, map[string]string{nodesOf: node})
	for i := range crowd {
		name := fmt.Sprintf("%s-pod-%d", node, i)
		cluster.createPod(t, node, name, map[string]string{"app": "web", "pair": pairOf(node, i/2)}, "app")
		kubelet.run(name, "app")
	}
}

// crowdBackend scrapes the node of one crowd alone: what other tests run meanwhile is
// neither load for the process nor counted as left behind by it.
func crowdBackend(t *testing.T, node, watch string) (flag string) {
	t.Helper()
	return "--backend-file=" + cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes(node, "watch: {"+watch+"}")))
}

// pairOf is the label of two of a node's pods.
func pairOf(node string, n int) string { return fmt.Sprintf("%s-%d", node, n) }

// TestWatchFaults: faulty clients do not delay another client, and in the end the process uses no more resources than
// at the start. Each case has its own process; the longest takes a minute, the timeout of a client that does not read.
func TestWatchFaults(t *testing.T) {
	beside(t)
	startCrowd(t, "crowded")
	// Parallel cases end before their parent's cleanup takes the pods away.
	t.Run("cases", func(t *testing.T) {
		for name, fault := range map[string]func(*testing.T, *process, string){
			"not reading, HTTP/1.1": func(t *testing.T, p *process, token string) { doNotRead(t, p, token, "HTTP/1.1") },
			"not reading, HTTP/2":   func(t *testing.T, p *process, token string) { doNotRead(t, p, token, "HTTP/2") },
			"vanished, HTTP/1.1":    func(t *testing.T, p *process, token string) { vanish(t, p, token, "HTTP/1.1") },
			"vanished, HTTP/2":      func(t *testing.T, p *process, token string) { vanish(t, p, token, "HTTP/2") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				token, profiler := cluster.token(t, "reader"), cluster.token(t, "profiler")
				p := cluster.startServing(t, "faulty", crowdBackend(t, "crowded", ""))
				p.waitReady(t)
				healthy := p.watchClient(t, "HTTP/2", nil)
				answer, err := p.open(t.Context(), healthy, crowdPath, token)
				if err != nil {
					t.Fatalf("open a watch: %v", err)
				}
				defer answer.Body.Close()
				reading := follow(answer)
				reading.next(t, crowdPause)
				before, err := p.resources(t.Context(), profiler)
				if err != nil {
					t.Fatal(err)
				}
				if before.watches != 1 {
					t.Fatalf("%g watches are open, want 1", before.watches)
				}
				stop := reading.keepsComing(t, crowdPause)
				fault(t, p, token)
				stop()
				p.returnsTo(t, profiler, before, 30*time.Second)
			})
		}
	})
}

// doNotRead opens watches and reads nothing of them.
func doNotRead(t *testing.T, p *process, token, protocol string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dial dialer
	if protocol == "HTTP/1.1" { // HTTP/2 has a window for each watch
		dial = narrow
	}
	client := p.watchClient(t, protocol, dial)
	var bodies []io.Reader
	for range badClients {
		answer, err := p.open(ctx, client, crowdPath, token)
		if err != nil {
			t.Fatalf("open a watch: %v", err)
		}
		defer answer.Body.Close()
		bodies = append(bodies, answer.Body)
	}
	p.wantWatches(t, token, badClients+1, 20*time.Second)
	// A minute without taking anything, and the buffers on the way there.
	p.wantWatches(t, token, 1, 3*time.Minute)
	for _, body := range bodies {
		if _, err := io.Copy(io.Discard, body); err == nil {
			t.Error("the watch of a client that did not read ended as if it were complete")
		}
	}
}

// vanish opens watches and then drops all packets from the server: no FIN, no reset, no acknowledgement.
func vanish(t *testing.T, p *process, token, protocol string) {
	var mu sync.Mutex
	var connections []*net.TCPConn
	client := p.watchClient(t, protocol, func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		connections = append(connections, connection.(*net.TCPConn))
		return connection, nil
	})
	for range badClients {
		answer, err := p.open(t.Context(), client, crowdPath, token)
		if err != nil {
			t.Fatalf("open a watch: %v", err)
		}
		defer answer.Body.Close()
		follow(answer).next(t, crowdPause)
	}
	p.wantWatches(t, token, badClients+1, 20*time.Second)
	mu.Lock()
	for _, connection := range connections {
		dropAll(t, connection)
	}
	mu.Unlock()
	// 45 s without an acknowledgement, and the kernel's next look.
	p.wantWatches(t, token, 1, 2*time.Minute)
}

// dropAll makes the kernel discard every incoming packet of a connection before TCP.
func dropAll(t *testing.T, connection *net.TCPConn) {
	t.Helper()
	raw, err := connection.SyscallConn()
	if err != nil {
		t.Fatalf("reach the socket: %v", err)
	}
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if err := errors.Join(err, set); err != nil {
		t.Fatalf("attach a filter to the socket: %v", err)
	}
}

// kill ends a process with SIGKILL.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.ended
}
