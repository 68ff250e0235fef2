package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bridgeName is what CLIs call the MCP server that has the functions of a call.
const bridgeName = "slipway"

// functionSeconds is how long CLIs are told to wait for a function: a batch of
// subagents has limits of its own.
const functionSeconds = 24 * 60 * 60

// A bridge offers the functions of one call to a CLI that speaks MCP. The CLI
// starts a process of its own choice for it, which lives in the sandbox and only
// passes bytes on (see Pipe); the functions themselves run here.
//
// A nil bridge offers nothing: the call has no functions, or the CLI no command
// to reach them.
type bridge struct {
	functions []Function

	socket  string // in a directory of its own, whose path is short enough for a socket
	command []string

	stop     context.CancelFunc
	listener net.Listener
	work     sync.WaitGroup // connections and functions

	mu    sync.Mutex
	watch *watch // of the run that the functions belong to
}

// newBridge starts to offer the functions, where there are some and there is a
// command. command is the program that becomes
// the CLI's MCP server, with the arguments that go before the socket's path. The
// caller closes the bridge when the CLI has ended.
func newBridge(ctx context.Context, command []string, functions []Function) (*bridge, error) {
	if len(command) == 0 || len(functions) == 0 {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "slipway-mcp-")
	if err != nil {
		return nil, noBridge(err)
	}
	b := &bridge{functions: functions, socket: filepath.Join(dir, "s")}
	b.command = slices.Concat(command, []string{b.socket})
	if b.listener, err = net.Listen("unix", b.socket); err != nil {
		return nil, noBridge(errors.Join(err, os.RemoveAll(dir)))
	}
	ctx, b.stop = context.WithCancel(ctx)
	server := mcp.NewServer(&mcp.Implementation{Name: bridgeName, Version: "1"}, nil)
	for _, f := range functions {
		server.AddTool(&mcp.Tool{
			Name: f.Name, Description: f.Description, InputSchema: f.Input,
			// CLIs use side by side only what changes nothing.
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
		}, b.handler(ctx, f))
	}
	b.work.Go(func() { b.accept(ctx, server) })
	return b, nil
}

func noBridge(err error) *Error {
	return &Error{Class: Transient, Reason: "the agent tool cannot be offered: " + err.Error(), Err: err}
}

// accept serves every connection until the bridge is closed.
func (b *bridge) accept(ctx context.Context, server *mcp.Server) {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		session, err := server.Connect(ctx, &mcp.IOTransport{Reader: conn, Writer: conn}, nil)
		if err != nil {
			_ = conn.Close() // who connected has gone
			continue
		}
		b.work.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = session.Close() })()
			_ = session.Wait() // how a CLI hangs up is its own affair
		})
	}
}

// handler is one function as an MCP tool. What fails is told to the agent.
func (b *bridge) handler(life context.Context, f Function) mcp.ToolHandler {
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		b.work.Add(1)
		defer b.work.Done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		defer b.busy()()
		out, err := f.Call(ctx, request.Params.Arguments)
		if err != nil {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out)}}}, nil
	}
}

// readable is what the process that the CLI starts needs in the sandbox.
func (b *bridge) readable() []string {
	if b == nil {
		return nil
	}
	return []string{b.command[0], filepath.Dir(b.socket)}
}

// names are those of the functions.
func (b *bridge) names() (names []string) {
	if b == nil {
		return nil
	}
	for _, f := range b.functions {
		names = append(names, f.Name)
	}
	return names
}

// config is the bridge in the form in which most CLIs take an MCP server.
func (b *bridge) config() string {
	type server struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	text, err := json.Marshal(map[string]map[string]server{"mcpServers": {bridgeName: {b.command[0], b.command[1:]}}})
	if err != nil {
		panic(err) // it is made of texts
	}
	return string(text)
}

// attach names the watch that a function at work keeps from taking the agent's
// silence for a stall.
func (b *bridge) attach(w *watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = w
}

// busy tells the watch that a function runs, until what it returns is called.
func (b *bridge) busy() (done func()) {
	b.mu.Lock()
	w := b.watch
	b.mu.Unlock()
	if w == nil {
		return func() {}
	}
	w.hold()
	return w.release
}

// close ends the functions that still run and returns when they have.
func (b *bridge) close() {
	if b == nil {
		return
	}
	b.stop()
	_ = b.listener.Close() // removes the socket too; its directory goes next
	b.work.Wait()
	_ = os.RemoveAll(filepath.Dir(b.socket)) // it is empty, and below the system's own temporary directory
}

// Pipe is what a CLI starts as its MCP server: it passes what the CLI says to
// the bridge at socket and back, until one of the two hangs up.
func Pipe(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("reach the agent call that this belongs to: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() { // ends with the process when the CLI keeps its side open
		_, _ = io.Copy(conn, in)              // the other direction tells of a broken connection
		_ = conn.(*net.UnixConn).CloseWrite() // likewise
	}()
	_, err = io.Copy(out, conn)
	if closeErr := conn.Close(); err == nil && !errors.Is(closeErr, net.ErrClosed) {
		err = closeErr
	}
	return err
}
