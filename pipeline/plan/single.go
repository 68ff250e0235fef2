package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/graph"
)

// Single is the plan of one issue that a person wrote as JSON. Its criteria are
// also those of the PRD, as ac-1 and so on, and all of them are must-haves. The
// errors name the field.
func Single(text []byte) (Result, error) {
	var is graph.Issue
	if err := strict(text, &is); err != nil {
		return Result{}, err
	}
	switch {
	case strings.TrimSpace(is.Title) == "":
		return Result{}, errors.New("title: say in one line what is to be done")
	case strings.TrimSpace(is.Description) == "":
		return Result{}, errors.New("description: say what is to be done")
	case len(is.AcceptanceCriteria) == 0:
		return Result{}, errors.New(`acceptance_criteria: give at least one, such as {"text": "greet.sh greets"}`)
	case len(is.DependsOn) > 0:
		return Result{}, errors.New("depends_on: there is no other issue that it could depend on")
	case is.ParentName != "":
		return Result{}, errors.New("parent_issue_name: there is no other issue that it could be a part of")
	}
	r := Result{
		PRD:       PRD{Title: is.Title, ValidatedDescription: is.Description, Size: "small"},
		Rationale: "The issue was given, so nothing was planned.",
	}
	for i := range is.AcceptanceCriteria {
		c := &is.AcceptanceCriteria[i]
		if strings.TrimSpace(c.Text) == "" {
			return Result{}, fmt.Errorf("acceptance_criteria[%d].text: say what is to be true", i)
		}
		id := fmt.Sprintf("ac-%d", i+1)
		c.PRDIDs = []string{id}
		r.PRD.AcceptanceCriteria = append(r.PRD.AcceptanceCriteria, Criterion{ID: id, Text: c.Text, MustHave: true})
	}
	is.Number = 0 // numbers are the graph's to give
	r.Issues = []graph.Issue{is}
	return Given(r)
}

// strict decodes one JSON value of exactly the fields of into.
func strict(text []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	err := in.Decode(into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := wrong.Field
		if field == "" {
			field = "the issue"
		}
		return fmt.Errorf("%s: want %s, got %s", field, wrong.Type, wrong.Value)
	}
	if broken, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("no JSON at byte %d: %w", broken.Offset, err)
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("there is nothing in it")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends in the middle of the JSON")
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: ")) // an unknown field, by its name
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more in it than one JSON object")
	}
	return nil
}
