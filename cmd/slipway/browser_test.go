package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// widths are a phone's and a desk's, in CSS pixels.
var widths = []int64{390, 1280}

// A window is a Chromium that notes what goes wrong on the pages it shows.
type window struct {
	*testing.T
	ctx context.Context // chromedp keeps its browser in one

	mu    sync.Mutex
	wrong []string
}

func newWindow(t *testing.T) *window {
	t.Helper()
	sandboxtest.Need(t, "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"),
		chromedp.NoSandbox) // it shows our own pages only, and tests may be run by root
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, leave := chromedp.NewContext(ctx)
	w := &window{T: t, ctx: ctx}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		leave()
		stop()
	})
	must(t, chromedp.Listen(ctx, w.note))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	must(t, err)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must(t, err)
	_, err = chromedp.Call(ctx, runtime.Enable, cdp.Empty{})
	must(t, err)
	return w
}

// note hears of errors on the console and of requests that leave this machine.
func (w *window) note(event any) {
	said := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = "exception: " + e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			said = "console: an error"
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			said = "console: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Hostname() != "127.0.0.1" {
			said = "a request to " + e.Request.URL
		}
	}
	if said != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrong = append(w.wrong, said)
	}
}

func (w *window) run(steps ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	must(w.T, chromedp.Do(w.ctx, steps...))
}

// ask is what an expression comes to on the page.
func ask[T any](w *window, expression string) T {
	w.Helper()
	v, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](expression))
	must(w.T, err)
	return v
}

// faults is what a page does to people, by its own measures: it is empty for one
// that is well.
const faults = `(() => {
	const out = [];
	const shown = e => e.getClientRects().length > 0 && getComputedStyle(e).visibility === 'visible';
	const root = document.documentElement;
	if (root.scrollWidth > root.clientWidth) out.push('it is ' + root.scrollWidth + ' px wide in ' + root.clientWidth);
	if (!root.lang) out.push('it names no language');
	if (!document.title) out.push('it has no title');
	for (const field of document.querySelectorAll('input:not([type=hidden]):not([type=submit]), select, textarea'))
		if (shown(field) && !field.disabled && !field.labels.length && !field.getAttribute('aria-label')) out.push('a field without a label: ' + field.outerHTML);
	const parse = c => { const n = c.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
	const behind = e => {
		for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
		return [255, 255, 255, 1];
	};
	const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const poor = new Set();
	for (let n; (n = walk.nextNode());) {
		const e = n.parentElement, style = getComputedStyle(e);
		if (!n.data.trim() || !shown(e)) continue;
		const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
		if (ratio < (size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5)) poor.add(style.color + ' at ' + ratio.toFixed(1) + ': ' + n.data.trim().slice(0, 40));
	}
	return out.concat([...poor].map(p => 'poor contrast: ' + p));
})()`

// reachable counts what a keyboard should reach, and marks it.
const reachable = `(() => {
	const all = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
		.filter(e => !e.disabled && e.getClientRects().length > 0);
	document.activeElement.blur();
	window.reached = new Set();
	addEventListener('focusin', e => window.reached.add(e.target));
	return all.length;
})()`

// looksWell looks at the page that is shown, at each width.
func (w *window) looksWell(name string) {
	w.Helper()
	for _, width := range widths {
		w.run(chromedp.EmulateViewport(width, 900))
		found := ask[[]string](w, faults)
		n := ask[int](w, reachable)
		for range n + 1 { // one may end in the browser's own bar
			w.run(chromedp.KeyEvent("\t"))
		}
		if reached := ask[int](w, `window.reached.size`); reached < n {
			found = append(found, fmt.Sprintf("a keyboard reaches %d of %d", reached, n))
		}
		w.picture(fmt.Sprintf("%s-%d.png", name, width))
		w.mu.Lock()
		found, w.wrong = append(found, w.wrong...), nil
		w.mu.Unlock()
		for _, f := range found {
			w.Errorf("%s at %d px: %s", name, width, f)
		}
	}
}

// picture leaves a screenshot where somebody wants to look.
func (w *window) picture(file string) {
	w.Helper()
	dir := os.Getenv("SLIPWAY_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	image, err := chromedp.Run(w.ctx, chromedp.FullScreenshot(100))
	must(w.T, err)
	must(w.T, os.WriteFile(filepath.Join(dir, file), image, 0o644))
}

// The set-up page and those of the stand-in, as people see them: on a phone and
// on a desk, by mouse, by keyboard and read aloud.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	w := newWindow(t)
	sim := schema.Start(t, githubsim.Options{})
	for name, address := range furnished(t, sim) {
		w.run(chromedp.Navigate(sim.URL() + address))
		w.looksWell(name)
	}

	served := serving(t, newTerminal(t, "SLIPWAY_GITHUB_BASE_URL="+sim.URL()+"/api/v3/"))
	w.run(chromedp.Navigate(served.until(`http://127\.0\.0\.1:\d+/setup\?token=\w+`)))
	w.looksWell("setup")
	w.submits("not an address", "[role=alert]")
	w.mu.Lock() // the answer is a 422, of which the console tells
	w.wrong = nil
	w.mu.Unlock()
	w.looksWell("setup-refused")
	ask[string](w, `document.querySelector('input[name=name]').value = 'My Slipway'`) // the other is taken
	w.submits("https://slipway.example.com", "table")
	w.looksWell("setup-review")
	w.presses("button")
	w.looksWell("setup-done")
	served.stop()
}

// submits sends the form with an address, also one that the browser would hold
// back, by the keyboard; the answer has to show something.
func (w *window) submits(address, shows string) {
	w.Helper()
	ask[bool](w, fmt.Sprintf(`document.querySelector('input[name=address]').value = %q; document.querySelector('form').noValidate = true`, address))
	w.presses("input[name=address]")
	if !ask[bool](w, fmt.Sprintf(`document.querySelector(%q) !== null`, shows)) {
		w.Errorf("no %s on\n%s", shows, ask[string](w, `document.body.innerText`))
	}
}

// presses the Enter key on an element and returns when another page is there.
func (w *window) presses(selector string) {
	w.Helper()
	ctx, stop := context.WithTimeout(w.ctx, 20*time.Second)
	defer stop()
	_, err := chromedp.RunResponse(ctx, chromedp.Focus(selector), chromedp.KeyEvent("\r"))
	must(w.T, err)
}

// furnished fills a stand-in with what its pages show, and returns where they are.
func furnished(t *testing.T, sim *githubsim.Server) (pages map[string]string) {
	t.Helper()
	_, err := sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Secret: hookSecret})
	must(t, err)
	_, err = sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: "greeter", Files: checked(green)})
	must(t, err)
	ticket, err := sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: fullName, Title: "Greet people", Body: "By name, " + strings.Repeat("very", 60) + " politely.", By: "mira", Labels: []string{"slipway:build"}})
	must(t, err)
	golden := filepath.Join("..", "..", "pipeline", "report", "testdata", "golden")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(golden, name))
		must(t, err)
		return string(text)
	}
	for _, name := range []string{"comment-running.md", "plan.md", "comment-failed.md"} {
		_, err := sim.Comment(t.Context(), githubsim.CommentSpec{Repo: fullName, Number: ticket.Number, By: "slipway[bot]", Body: read(name)})
		must(t, err)
	}
	made, err := sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "slipway/1-greet", By: "slipway[bot]", Message: "Greet", Files: map[string]string{"greet.sh": "echo hello\n"}})
	must(t, err)
	pull, err := sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Greet people", Head: "slipway/1-greet", By: "slipway[bot]", Draft: true, Body: read("pull-with-debt.md")})
	must(t, err)
	_, hub := client(t, githubsim.Remote{URL: sim.URL()}, "harbour", "greeter")
	_, _, err = hub.Checks.CreateCheckRun(t.Context(), "harbour", "greeter", github.CreateCheckRunOptions{
		Name: "slipway/build", HeadSHA: made.SHA, Status: github.String("completed"), Conclusion: github.String("failure"),
		Output: &github.CheckRunOutput{Title: github.String("Failed"), Summary: github.String(read("check-failed.md"))},
	})
	must(t, err)
	return map[string]string{
		"repository": "/" + fullName, "ticket": strings.TrimPrefix(ticket.Page, sim.URL()), "pull": strings.TrimPrefix(pull.Page, sim.URL()),
	}
}
