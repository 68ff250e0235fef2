package native

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

const (
	readLines  = 2000      // lines that READ shows unless told
	readBytes  = 80_000    // bytes that READ shows at most
	lineBytes  = 2000      // bytes that it shows of one line
	maxImage   = 3_500_000 // bytes; the APIs take 5 MB in base64
	maxChanged = 8 << 20   // bytes of a file that EDIT and WRITE take
)

const readText = `Reads a file. Text comes with line numbers, then a tab; they are not part of the file. Without offset and limit it begins at the
first line and shows up to 2000. PNG, JPEG, GIF and WebP images are shown as images.`

type readInputs struct {
	Path   string `json:"path" jsonschema:"the file, absolute or relative to your directory"`
	Offset int    `json:"offset,omitempty" jsonschema:"the first line to show, counted from 1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines to show"`
}

func readFile(_ context.Context, p *place, in readInputs) result {
	f, info, err := p.openFile(in.Path)
	if err != nil {
		return failed("%v", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	r := bufio.NewReaderSize(f, 64<<10)
	head, err := r.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return failed("%v", err)
	}
	if media := http.DetectContentType(head); isImage(media) {
		if info.Size() > maxImage {
			return failed("%s is an image of %d bytes; the most that can be shown are %d", in.Path, info.Size(), maxImage)
		}
		data, err := io.ReadAll(io.LimitReader(r, maxImage+1))
		if err != nil || len(data) > maxImage {
			return failed("%s cannot be read as an image: %v", in.Path, err)
		}
		return result{image: &image{media: media, data: data}}
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return failed("%s is a binary file of %d bytes (%s)", in.Path, info.Size(), http.DetectContentType(head))
	}
	if info.Size() == 0 {
		return result{text: "(the file is empty)"}
	}
	return numbered(r, max(in.Offset, 1), cmp.Or(max(in.Limit, 0), readLines))
}

func isImage(media string) bool {
	return media == "image/png" || media == "image/jpeg" || media == "image/gif" || media == "image/webp"
}

// numbered shows lines from first on. It counts the rest, so that the model
// knows how much there is.
func numbered(r *bufio.Reader, first, limit int) result {
	var out strings.Builder
	line, shown, last := 0, 0, 0
	for {
		text, length, err := readLine(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return failed("%v", err)
		}
		if line++; line < first || shown == limit || out.Len() >= readBytes {
			continue
		}
		shown, last = shown+1, line
		_, _ = fmt.Fprintf(&out, "%6d\t%s", line, text) // a Builder takes everything
		if length > lineBytes {
			_, _ = fmt.Fprintf(&out, "… (%d bytes in all)", length)
		}
		out.WriteByte('\n')
	}
	switch {
	case shown == 0:
		return failed("the file has %d lines; there is no line %d", line, first)
	case last < line:
		_, _ = fmt.Fprintf(&out, "(lines %d to %d of %d; offset %d goes on)\n", first, last, line, last+1)
	}
	return result{text: out.String()}
}

// readLine returns the first bytes of the next line, without its end, and the
// length of the whole. After the last line the error is io.EOF.
func readLine(r *bufio.Reader) (text []byte, length int, err error) {
	for begun := false; ; {
		piece, err := r.ReadSlice('\n')
		begun = begun || len(piece) > 0
		piece = bytes.TrimSuffix(piece, []byte("\n"))
		length += len(piece)
		if room := lineBytes - len(text); room > 0 {
			text = append(text, piece[:min(len(piece), room)]...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil, errors.Is(err, io.EOF) && begun:
			return bytes.TrimSuffix(text, []byte("\r")), length, nil
		}
		return nil, 0, err
	}
}

const writeText = `Writes a file as a whole, and the directories on the way to it. What the file held before is gone; to change a part, use EDIT.`

type writeInputs struct {
	Path    string `json:"path" jsonschema:"the file, absolute or relative to your directory"`
	Content string `json:"content" jsonschema:"everything that is to be in it"`
}

func writeFile(_ context.Context, p *place, in writeInputs) result {
	if len(in.Content) > maxChanged {
		return failed("the content has more than %d MiB", maxChanged>>20)
	}
	r, rel, err := p.target(in.Path)
	if err != nil {
		return failed("%v", err)
	}
	if err := r.replace(rel, []byte(in.Content)); err != nil {
		return failed("%v", err)
	}
	return result{text: fmt.Sprintf("%s has %d lines now.", p.name(r, rel), lines(in.Content))}
}

func lines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

const editText = `Replaces a piece of a file. The old text has to be in the file exactly as it is given, white space included, and once; give more of
what is around it until it is unique, or set all to replace every occurrence.`

type editInputs struct {
	Path string `json:"path" jsonschema:"the file, absolute or relative to your directory"`
	Old  string `json:"old" jsonschema:"the text to replace, without line numbers"`
	New  string `json:"new" jsonschema:"what takes its place"`
	All  bool   `json:"all,omitempty" jsonschema:"replace every occurrence"`
}

func editFile(_ context.Context, p *place, in editInputs) result {
	r, rel, err := p.target(in.Path)
	if err != nil {
		return failed("%v", err)
	}
	f, _, err := r.openFile(rel)
	if err != nil {
		return failed("%v", err)
	}
	data, err := readAll(f, maxChanged)
	if err := errors.Join(err, f.Close()); err != nil {
		return failed("%v", err)
	}
	before := string(data)
	if problem := editProblem(before, in); problem != "" {
		return failed("%s: %s", p.name(r, rel), problem)
	}
	if err := r.replace(rel, []byte(strings.ReplaceAll(before, in.Old, in.New))); err != nil {
		return failed("%v", err)
	}
	at := strings.Index(before, in.Old)
	return result{text: fmt.Sprintf("%s: replaced %d, the first in line %d.", p.name(r, rel), strings.Count(before, in.Old), lineOf(before, at))}
}

// editProblem says why an edit cannot be done, and how it can.
func editProblem(text string, in editInputs) string {
	switch {
	case in.Old == "":
		return "old is empty; WRITE writes a file as a whole"
	case in.Old == in.New:
		return "old and new are the same"
	case !utf8.ValidString(text):
		return "the file is not UTF-8 text"
	}
	switch n := strings.Count(text, in.Old); {
	case n == 0:
		return "old is not in the file" + nearMiss(text, in.Old)
	case n > 1 && !in.All:
		return fmt.Sprintf("old is in the file %d times, in lines %s; give more of what is around the one that you mean, or set all", n, occurrences(text, in.Old))
	}
	return ""
}

func occurrences(text, old string) string {
	var at []string
	for from := 0; len(at) < 10; {
		i := strings.Index(text[from:], old)
		if i < 0 {
			break
		}
		at = append(at, fmt.Sprint(lineOf(text, from+i)))
		from += i + len(old)
	}
	return strings.Join(at, ", ")
}

// nearMiss looks for the usual reasons why a text is not found.
func nearMiss(text, old string) string {
	if strings.Contains(text, "\r\n") && strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), old) {
		return `: its lines end with \r\n`
	}
	if at := looseMatch(text, old); at > 0 {
		return fmt.Sprintf("; from line %d on there is the same text with other white space: READ it again and copy it exactly", at)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(old), "\n")
	if first = strings.TrimSpace(first); first != "" {
		if i := strings.Index(text, first); i >= 0 {
			return fmt.Sprintf("; its first line is there, in line %d, but what follows differs: READ the file again", lineOf(text, i))
		}
	}
	return "; READ it again, it may have changed"
}

// looseMatch returns the line where old begins when white space at both ends of
// lines does not count; 0 when it does not.
func looseMatch(text, old string) int {
	want := trimmedLines(strings.Trim(old, "\n"))
	have := trimmedLines(text)
	for i := 0; i+len(want) <= len(have); i++ {
		same := true
		for j := range want {
			if have[i+j] != want[j] {
				same = false
				break
			}
		}
		if same {
			return i + 1
		}
	}
	return 0
}

func trimmedLines(text string) []string {
	all := strings.Split(text, "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

func lineOf(text string, at int) int { return strings.Count(text[:at], "\n") + 1 }
