package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Hook lets calls of one method fail or wait. The file with them is read anew at each call.
type Hook struct {
	// Method is the call's name, such as CreateVolume.
	Method string `json:"method"`
	// Code is the code of the answer, as the protocol spells it: UNAVAILABLE. Without a code the call is only delayed.
	Code string `json:"code"`
	// Message is the message of the answer.
	Message string `json:"message"`
	// After lets the service do its work before the answer is lost.
	After bool `json:"after"`
	// Delay is the time in milliseconds before the answer.
	Delay int64 `json:"delay"`
	// Times is the number of calls that use the hook; without it, all calls do.
	Times int `json:"times"`
}

// hooks counts how often each hook was used, by its content: a changed hook is a new one.
type hooks struct {
	file    string
	methods []string
	mu      sync.Mutex
	used    map[Hook]int
}

// read returns the hooks of a file, and refuses a misspelt hook: with it, a test would pass and show nothing.
func (h *hooks) read() ([]Hook, error) {
	if h.file == "" {
		return nil, nil
	}
	file, err := os.Open(h.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Hook
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("read %s: %w", h.file, err)
	}
	for _, each := range all {
		if _, err := each.code(); err != nil {
			return nil, fmt.Errorf("read %s: %w", h.file, err)
		}
		if !slices.Contains(h.methods, each.Method) {
			return nil, fmt.Errorf("read %s: there is no method %q", h.file, each.Method)
		}
	}
	return all, nil
}

func (h Hook) code() (codes.Code, error) {
	if h.Code == "" {
		return codes.OK, nil
	}
	var code codes.Code
	err := code.UnmarshalJSON([]byte(`"` + h.Code + `"`))
	return code, err
}

// next takes the first hook for a method that has not been used up.
func (h *hooks) next(method string) (*Hook, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := h.read()
	if err != nil {
		return nil, err
	}
	for _, each := range all {
		if each.Method == method && (each.Times == 0 || h.used[each] < each.Times) {
			h.used[each]++
			return &each, nil
		}
	}
	return nil, nil
}

// intercept applies the hooks and writes one line for each call.
func (h *hooks) intercept(ctx context.Context, request any, call *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := filepath.Base(call.FullMethod)
	hook, err := h.next(method)
	if err != nil {
		err = status.Error(codes.Internal, err.Error())
		log.Printf("%s: %v", method, err)
		return nil, err
	}
	response, err := h.answer(ctx, hook, func() (any, error) { return handle(ctx, request) })
	log.Printf("%s: %s %s", method, status.Code(err), status.Convert(err).Message())
	return response, err
}

func (h *hooks) answer(ctx context.Context, hook *Hook, work func() (any, error)) (any, error) {
	if hook == nil {
		return work()
	}
	code, _ := hook.code()
	var response any
	var err error
	if hook.After || code == codes.OK {
		response, err = work()
	}
	select {
	case <-time.After(time.Duration(hook.Delay) * time.Millisecond):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if code != codes.OK {
		return nil, status.Error(code, hook.Message)
	}
	return response, err
}
