package main

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/slipway-dev/slipway/config"
)

// What is written for Docker Compose and Kubernetes is read here as strictly as
// they read it: these are the fields that we use, under their names there, and no
// others. A misspelt one would be ignored by some versions and do harm in silence.

type composeFile struct {
	Name     string                    `yaml:"name"`
	Common   composeService            `yaml:"x-slipway"`
	Services map[string]composeService `yaml:"services"`
	Secrets  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
	Volumes map[string]struct{} `yaml:"volumes"`
}

type composeService struct {
	Build struct {
		Context string `yaml:"context"`
		Network string `yaml:"network"`
	} `yaml:"build"`
	Image       string   `yaml:"image"`
	Command     any      `yaml:"command"` // a text or a list
	Restart     string   `yaml:"restart"`
	StopGrace   string   `yaml:"stop_grace_period"`
	SecurityOpt []string `yaml:"security_opt"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Environment map[string]string `yaml:"environment"`
	Secrets     []string          `yaml:"secrets"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	Healthcheck struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
	} `yaml:"healthcheck"`
	Deploy struct {
		Replicas int `yaml:"replicas"`
	} `yaml:"deploy"`
}

// drain is how long a process may take to hand its work back.
const drain = time.Minute

func TestComposeFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	must(t, err)
	var file composeFile
	must(t, yaml.Load(text, &file, yaml.WithKnownFields()))
	if got := slices.Sorted(maps.Keys(file.Services)); !slices.Equal(got, []string{"redis", "server", "worker"}) {
		t.Fatalf("services %v", got)
	}
	redis, _ := file.Services["redis"].Command.(string)
	for _, want := range []string{"--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"} {
		if !strings.Contains(redis, want) {
			t.Errorf("Redis is started without %s: %s", want, redis)
		}
	}
	for name, s := range file.Services {
		for _, volume := range s.Volumes {
			if source, _, _ := strings.Cut(volume, ":"); !hasKey(file.Volumes, source) {
				t.Errorf("%s: there is no volume %s", name, source)
			}
		}
		if len(s.Volumes) == 0 {
			t.Errorf("%s keeps nothing", name)
		}
		for _, secret := range s.Secrets {
			if !hasKey(file.Secrets, secret) {
				t.Errorf("%s: there is no secret %s", name, secret)
			}
		}
		if name == "redis" {
			continue
		}
		if grace, err := time.ParseDuration(s.StopGrace); err != nil || grace <= drain {
			t.Errorf("%s is killed after %s, in which it may not have handed its work back", name, s.StopGrace)
		}
		if s.Build.Network != "none" {
			t.Errorf("%s is built with a network", name)
		}
		if s.DependsOn["redis"].Condition != "service_healthy" {
			t.Errorf("%s does not wait for Redis", name)
		}
		conf := environmentIsKnown(t, name, s.Environment, true)
		if !strings.HasPrefix(conf.RedisURL.Reveal(), "redis://redis:") || len(conf.Missing()) > 0 {
			t.Errorf("%s is not configured: %v", name, conf.Missing())
		}
		if file := "/run/secrets/" + s.Secrets[0]; conf.GitHub.PrivateKeyFile != file {
			t.Errorf("%s looks for its key in %s, and not in %s", name, conf.GitHub.PrivateKeyFile, file)
		}
		args := []string{"serve"} // the image's
		if words, ok := s.Command.([]any); ok {
			args = args[:0]
			for _, w := range words {
				args = append(args, w.(string))
			}
		}
		argumentsAreKnown(t, name, args)
	}
	if n := file.Services["worker"].Deploy.Replicas; n != 3 {
		t.Errorf("%d workers", n)
	}
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// substituted is what Compose makes of ${NAME:-default} and of ${NAME:?complaint}.
var substituted = regexp.MustCompile(`\$\{([A-Z_]+):[-?]([^}]*)\}`)

// environmentIsKnown checks that each variable is one that a server reads, or the
// credential of a model; and loads them where they have values.
func environmentIsKnown(t *testing.T, who string, environment map[string]string, load bool) config.Server {
	t.Helper()
	manual, err := os.ReadFile("../../docs/configuration.md")
	must(t, err)
	environ := []string{"HOME=/home/slipway"}
	for name, value := range environment {
		if !slices.Contains(config.Variables(), name) && (strings.HasPrefix(name, "SLIPWAY_") || !bytes.Contains(manual, []byte("`"+name+"`"))) {
			t.Errorf("%s: no configuration has %s", who, name)
		}
		if m := substituted.FindStringSubmatch(value); m != nil {
			if m[1] != name {
				t.Errorf("%s: %s is taken from %s", who, name, m[1])
			}
			value = "7" // also a number; a default is checked below
			if strings.Contains(m[0], ":-") {
				value = m[2]
			}
		}
		environ = append(environ, name+"="+value)
	}
	if !load {
		return config.Server{}
	}
	conf, err := config.LoadServer("", environ)
	if err != nil {
		t.Errorf("%s: %v", who, err)
	}
	return conf
}

// argumentsAreKnown checks a command line of slipway, without running it.
func argumentsAreKnown(t *testing.T, who string, args []string) {
	t.Helper()
	cmd, rest, err := newRoot().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || !cmd.HasParent() {
		t.Errorf("%s: slipway %s: %v", who, strings.Join(args, " "), err)
	}
}

// object is any of the objects in Kubernetes that we use. What one kind does not
// have is not told apart here.
type object struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   objectMeta        `yaml:"metadata"`
	StringData map[string]string `yaml:"stringData"`
	Spec       yaml.Node         `yaml:"spec"`
}

type objectMeta struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type serviceSpec struct {
	ClusterIP string            `yaml:"clusterIP"`
	Selector  map[string]string `yaml:"selector"`
	Ports     []struct {
		Port       int `yaml:"port"`
		TargetPort int `yaml:"targetPort"`
	} `yaml:"ports"`
}

type budgetSpec struct {
	MinAvailable   int      `yaml:"minAvailable"`
	MaxUnavailable int      `yaml:"maxUnavailable"`
	Selector       selector `yaml:"selector"`
}

// workload is the spec of a Deployment or a StatefulSet.
type workload struct {
	ServiceName string   `yaml:"serviceName"`
	Replicas    int      `yaml:"replicas"`
	Selector    selector `yaml:"selector"`
	Template    struct {
		Metadata objectMeta `yaml:"metadata"`
		Spec     podSpec    `yaml:"spec"`
	} `yaml:"template"`
	VolumeClaimTemplates []struct {
		Metadata objectMeta `yaml:"metadata"`
		Spec     struct {
			AccessModes []string  `yaml:"accessModes"`
			Resources   resources `yaml:"resources"`
		} `yaml:"spec"`
	} `yaml:"volumeClaimTemplates"`
}

type podSpec struct {
	AutomountToken  *bool `yaml:"automountServiceAccountToken"`
	GraceSeconds    int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext struct {
		RunAsNonRoot   bool `yaml:"runAsNonRoot"`
		RunAsUser      int  `yaml:"runAsUser"`
		RunAsGroup     int  `yaml:"runAsGroup"`
		FSGroup        int  `yaml:"fsGroup"`
		SeccompProfile struct {
			Type string `yaml:"type"`
		} `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container `yaml:"containers"`
	Volumes    []struct {
		Name     string    `yaml:"name"`
		EmptyDir *struct{} `yaml:"emptyDir"`
	} `yaml:"volumes"`
}

type container struct {
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	EnvFrom []struct {
		SecretRef struct {
			Name string `yaml:"name"`
		} `yaml:"secretRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name      string `yaml:"name"`
		Value     string `yaml:"value"`
		ValueFrom struct {
			SecretKeyRef struct {
				Name string `yaml:"name"`
				Key  string `yaml:"key"`
			} `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
	Ports []struct {
		ContainerPort int `yaml:"containerPort"`
	} `yaml:"ports"`
	StartupProbe    *probe `yaml:"startupProbe"`
	LivenessProbe   *probe `yaml:"livenessProbe"`
	ReadinessProbe  *probe `yaml:"readinessProbe"`
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct {
			Drop []string `yaml:"drop"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Resources    resources `yaml:"resources"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet *struct {
		Path string `yaml:"path"`
		Port int    `yaml:"port"`
	} `yaml:"httpGet"`
	TCPSocket *struct {
		Port int `yaml:"port"`
	} `yaml:"tcpSocket"`
	Exec *struct {
		Command []string `yaml:"command"`
	} `yaml:"exec"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

type resources struct {
	Requests map[string]string `yaml:"requests"`
	Limits   map[string]string `yaml:"limits"`
}

// A cluster is what the manifests make.
type cluster struct {
	secrets   map[string]map[string]string
	services  map[string]serviceSpec
	budgets   map[string]budgetSpec
	workloads map[string]workload
}

func readManifests(t *testing.T) cluster {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy/kubernetes.yml")
	must(t, err)
	c := cluster{map[string]map[string]string{}, map[string]serviceSpec{}, map[string]budgetSpec{}, map[string]workload{}}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var o object
		must(t, yaml.Load([]byte(part), &o, yaml.WithKnownFields()))
		name, err := o.Metadata.Name, error(nil)
		switch o.APIVersion + " " + o.Kind {
		case "v1 Secret":
			c.secrets[name] = o.StringData
		case "v1 Service":
			c.services[name], err = specOf[serviceSpec](o)
		case "policy/v1 PodDisruptionBudget":
			c.budgets[name], err = specOf[budgetSpec](o)
		case "apps/v1 Deployment", "apps/v1 StatefulSet":
			c.workloads[name], err = specOf[workload](o)
		default:
			t.Errorf("%s %s: what is that?", o.APIVersion, o.Kind)
		}
		if err != nil {
			t.Fatalf("%s %s: %v", o.Kind, name, err)
		}
	}
	return c
}

func specOf[T any](o object) (spec T, err error) {
	err = o.Spec.Load(&spec, yaml.WithKnownFields())
	return spec, err
}

func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	c := readManifests(t)
	if got := slices.Sorted(maps.Keys(c.workloads)); !slices.Equal(got, []string{"slipway-redis", "slipway-server", "slipway-worker"}) {
		t.Fatalf("workloads %v", got)
	}
	for name, s := range c.services {
		w := c.selected(t, name, s.Selector)
		for _, p := range s.Ports {
			if target := max(p.TargetPort, w.Template.Spec.Containers[0].Ports[0].ContainerPort); !opens(w, target) {
				t.Errorf("service %s: nothing listens on %d", name, target)
			}
		}
	}
	for name, b := range c.budgets {
		w := c.selected(t, name, b.Selector.MatchLabels)
		if b.MinAvailable >= w.Replicas || b.MinAvailable+b.MaxUnavailable == 0 {
			t.Errorf("budget %s: of %d pods %d must stay and %d may go", name, w.Replicas, b.MinAvailable, b.MaxUnavailable)
		}
	}
	for _, name := range []string{"slipway-server", "slipway-worker"} {
		if !hasKey(c.budgets, name) {
			t.Errorf("%s: all of its pods may be evicted at once", name)
		}
		c.runsSlipway(t, name)
	}
	for name, w := range c.workloads {
		c.isConfined(t, name, w)
	}
	redis := strings.Join(c.workloads["slipway-redis"].Template.Spec.Containers[0].Args, "")
	for _, want := range []string{"'appendonly yes'", "'appendfsync always'", "'maxmemory-policy noeviction'"} {
		if !strings.Contains(redis, want) {
			t.Errorf("Redis is started without %s", want)
		}
	}
}

// selected is the one workload whose pods have the labels.
func (c cluster) selected(t *testing.T, who string, labels map[string]string) workload {
	t.Helper()
	var found []workload
	for _, w := range c.workloads {
		all := len(labels) > 0
		for k, v := range labels {
			all = all && w.Template.Metadata.Labels[k] == v
		}
		if all {
			found = append(found, w)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s selects %d workloads by %v", who, len(found), labels)
	}
	return found[0]
}

func opens(w workload, port int) bool {
	for _, p := range w.Template.Spec.Containers[0].Ports {
		if p.ContainerPort == port {
			return true
		}
	}
	return false
}

// runsSlipway checks what a server or a worker is given and asked.
func (c cluster) runsSlipway(t *testing.T, name string) {
	t.Helper()
	w := c.workloads[name]
	pod, box := w.Template.Spec, w.Template.Spec.Containers[0]
	argumentsAreKnown(t, name, box.Args)
	secret := maps.Clone(c.secrets[box.EnvFrom[0].SecretRef.Name])
	delete(secret, "REDISCLI_AUTH") // for redis-cli
	environmentIsKnown(t, name, secret, false)
	own := map[string]string{}
	for _, e := range box.Env {
		own[e.Name] = e.Value
	}
	environmentIsKnown(t, name, own, true)
	if time.Duration(pod.GraceSeconds)*time.Second <= drain {
		t.Errorf("%s is killed after %d s, in which it may not have handed its work back", name, pod.GraceSeconds)
	}
	if p := box.LivenessProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthz" || !opens(w, p.HTTPGet.Port) {
		t.Errorf("%s: liveness must not depend on the store", name)
	}
	if p := box.ReadinessProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/readyz" || !opens(w, p.HTTPGet.Port) || p.TimeoutSeconds <= 2 {
		t.Errorf("%s: readiness is whether the store answers, which takes two seconds at most", name)
	}
}

// isConfined checks what pods may do, have and must answer.
func (c cluster) isConfined(t *testing.T, name string, w workload) {
	t.Helper()
	pod := w.Template.Spec
	if !maps.Equal(w.Selector.MatchLabels, w.Template.Metadata.Labels) {
		t.Errorf("%s does not select its own pods", name)
	}
	if s := pod.SecurityContext; !s.RunAsNonRoot || s.RunAsUser == 0 || s.FSGroup == 0 || s.SeccompProfile.Type != "RuntimeDefault" || pod.AutomountToken == nil || *pod.AutomountToken {
		t.Errorf("%s: its pods may too much", name)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v.EmptyDir != nil
	}
	for _, v := range w.VolumeClaimTemplates {
		volumes[v.Metadata.Name] = v.Spec.Resources.Requests["storage"] != ""
	}
	for _, box := range pod.Containers {
		s := box.SecurityContext
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s: its container may too much", name)
		}
		if box.LivenessProbe == nil || box.ReadinessProbe == nil || box.LivenessProbe.PeriodSeconds*box.LivenessProbe.FailureThreshold < 60 {
			t.Errorf("%s: it has no probes, or is restarted in a hurry", name)
		}
		if box.Resources.Requests["cpu"] == "" || box.Resources.Requests["memory"] == "" || box.Resources.Limits["memory"] == "" {
			t.Errorf("%s: resources %v", name, box.Resources)
		}
		for _, m := range box.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: there is no volume %s", name, m.Name)
			}
		}
		for _, e := range box.Env {
			if ref := e.ValueFrom.SecretKeyRef; ref.Name != "" && !hasKey(c.secrets[ref.Name], ref.Key) {
				t.Errorf("%s: the secret %s has no %s", name, ref.Name, ref.Key)
			}
		}
	}
}
