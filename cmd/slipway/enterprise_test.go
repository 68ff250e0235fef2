package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// newAuthority makes a certificate authority that nobody knows, as a file, and
// has it certify this machine.
func newAuthority(t *testing.T) (caFile string, server *tls.Config) {
	t.Helper()
	sign := func(cert, by *x509.Certificate, key *ecdsa.PrivateKey, with *ecdsa.PrivateKey) []byte {
		t.Helper()
		cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, cert, by, &key.PublicKey, with)
		must(t, err)
		return der
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		return key
	}
	rootKey, key := newKey(), newKey()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Harbour's own"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(root, root, rootKey, rootKey)}), 0o600))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "github"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return caFile, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{sign(leaf, root, key, rootKey)}, PrivateKey: key}}}
}

// GitHub Enterprise Server behind a certificate of an authority of its own: the
// API and git both trust it by the file that is named.
func TestABuildOnEnterpriseServer(t *testing.T) {
	t.Parallel()
	ca, secured := newAuthority(t)
	s := newShoreOn(t, githubsim.Options{Enterprise: true, TLS: secured})
	s.conf.GitHub.CAFile = ca
	s.commit(map[string]string{".github/slipway.yml": "commands:\n  test: sh check.sh\n" + unreviewed})
	s.serve(company)
	s.ticket = s.open("Greet people")
	s.says("mira", "/build")
	until(t, time.Minute, "no build was queued", func() bool { return len(s.jobs(pipeline.KindBuild)) == 1 })
	s.rest()
	final, err := pipeline.Read(t.Context(), s.store, s.jobs(pipeline.KindBuild)[0].ID)
	must(t, err)
	if final.State != report.Succeeded || final.Pull == nil || !strings.HasPrefix(final.Pull.URL, "https://127.0.0.1:") {
		t.Errorf("the build: %s, %s, pull request %+v", final.State, final.Cause, final.Pull)
	}
}

// The doctor says what is wrong with the address or the certificate.
func TestDoctorOfEnterpriseServer(t *testing.T) {
	t.Parallel()
	ca, secured := newAuthority(t)
	sim := schema.Start(t, githubsim.Options{Enterprise: true, TLS: secured})
	made, err := sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Secret: hookSecret})
	must(t, err)
	key := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(key, []byte(made.PrivateKey), 0o600))
	for name, c := range map[string]struct{ base, ca, want string }{
		"well":                     {sim.URL() + "/api/v3/", ca, `"state":"ok","text":"App `},
		"without /api/v3":          {sim.URL() + "/", ca, "on GitHub Enterprise Server is " + sim.URL() + "/api/v3/"},
		"an unknown authority":     {sim.URL() + "/api/v3/", "", "let github.ca_file name the file of the certificate"},
		"a file of no certificate": {sim.URL() + "/api/v3/", key, "has no certificate in PEM"},
		"nobody there":             {"https://127.0.0.1:1/api/v3/", ca, "see that github.base_url is right"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{
				"SLIPWAY_GITHUB_APP_ID=" + strconv.FormatInt(made.ID, 10), "SLIPWAY_GITHUB_PRIVATE_KEY_FILE=" + key,
				"SLIPWAY_GITHUB_WEBHOOK_SECRETS=" + hookSecret, "SLIPWAY_GITHUB_BASE_URL=" + c.base, "SLIPWAY_GITHUB_CA_FILE=" + c.ca,
			}
			end := newTerminal(t, env...).slipway("doctor", "--runtime", "command", "--agent-command", "true", "--json")
			checkDiagnoses(t, end, 3, nil) // nobody installed it
			if !strings.Contains(end.out, c.want) {
				t.Errorf("no %q in\n%s", c.want, end.out)
			}
		})
	}
}
