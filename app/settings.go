package app

import (
	"strings"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
)

// effective is what builds of a repository with those files go by, value by
// value: the runtime that this process runs whatever is configured, the model
// of each role also where it is the runtime's own choice. Where the server's
// file is, is nobody's business on GitHub. A bad file is a *config.Error.
func effective(engine *pipeline.Engine, files pipeline.Files) ([]config.Setting, error) {
	conf, err := engine.Layered(files)
	if err != nil {
		return nil, err
	}
	roles, err := conf.Assignments(engine.Only)
	if err != nil {
		return nil, err
	}
	var out []config.Setting
	for _, s := range conf.Settings() {
		if strings.HasPrefix(s.Key, "models.") {
			continue // below, as it comes out
		}
		s.Origin = layer(s.Origin, files.Owner)
		if s.Key == "runtime" && engine.Only != "" {
			s.Value, s.Origin = engine.Only, "the server's start"
		}
		out = append(out, s)
	}
	for _, r := range roles {
		out = append(out, model(r, files.Owner))
	}
	return out, nil
}

// model is the setting of one role: who is asked, and which key says so.
func model(a config.Assignment, owner string) config.Setting {
	links := make([]string, len(a.Chain))
	for i, t := range a.Chain {
		links[i] = t.String()
	}
	s := config.Setting{Key: "models." + a.Role, Value: strings.Join(links, " | "), Origin: a.Origin}
	if a.Key == "runtime" {
		s.Origin = "the runtime's own choice"
		return s
	}
	s.Origin = layer(a.Origin, owner)
	if a.Key != s.Key {
		s.Origin += ", by " + a.Key
	}
	return s
}

// layer is an origin as people on GitHub may read it.
func layer(origin, owner string) string {
	if origin != "default" && origin != pipeline.ConfigFile && origin != pipeline.OwnersOrigin(owner) {
		return "the server"
	}
	return origin
}
