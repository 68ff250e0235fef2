package queue

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

const (
	plain      = 'j'
	compressed = 'z'

	// maxFrame bounds what one step or signal may hold: Redis keeps it in memory.
	maxFrame = 32 << 20
)

// frame is how a signal or a step is stored: its fields as JSON with their
// length before them, and then a body, byte for byte; compressed where it is
// larger than maxInline.
func frame(fields any, body []byte) ([]byte, error) {
	meta, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	whole := fmt.Appendf([]byte{plain}, "%d ", len(meta))
	whole = append(append(whole, meta...), body...)
	if len(whole) > maxFrame {
		return nil, fmt.Errorf("%d bytes are more than Redis is to hold in one piece, which is %d", len(whole), maxFrame)
	}
	if len(whole) <= maxInline {
		return whole, nil
	}
	out := bytes.NewBuffer([]byte{compressed})
	w := gzip.NewWriter(out)
	_, err = w.Write(whole[1:])
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

var errFrame = errors.New("what is stored is damaged")

// unframe reads what a script has stored: the time, and behind it a frame.
func unframe(stored any, fields any) (at time.Time, body []byte, err error) {
	text, _ := stored.(string)
	when, framed, ok := bytes.Cut([]byte(text), []byte{' '})
	n, err := strconv.ParseInt(string(when), 10, 64)
	if !ok || err != nil || len(framed) == 0 {
		return time.Time{}, nil, errFrame
	}
	whole := framed[1:]
	if framed[0] == compressed {
		r, err := gzip.NewReader(bytes.NewReader(whole))
		if err != nil {
			return time.Time{}, nil, errors.Join(errFrame, err)
		}
		if whole, err = io.ReadAll(io.LimitReader(r, maxFrame+1)); err != nil {
			return time.Time{}, nil, errors.Join(errFrame, err)
		}
	}
	length, rest, ok := bytes.Cut(whole, []byte{' '})
	size, err := strconv.Atoi(string(length))
	if !ok || err != nil || size < 0 || size > len(rest) {
		return time.Time{}, nil, errFrame
	}
	if err := json.Unmarshal(rest[:size], fields); err != nil {
		return time.Time{}, nil, errors.Join(errFrame, err)
	}
	if body = rest[size:]; len(body) == 0 {
		body = nil
	}
	return fromMicros(n), body, nil
}
