package queue

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// takeTLS takes what says whom to trust out of an address, because the client
// library does not know it: ca names a file of certificates in PEM that are
// trusted in place of the system's, cert and key are what we show ourselves. The
// result is nil for an address without TLS.
func takeTLS(u *url.URL) (*tls.Config, error) {
	query := u.Query()
	files := map[string]string{}
	for _, name := range []string{"ca", "cert", "key"} {
		path := query.Get(name)
		query.Del(name)
		switch {
		case path == "":
			continue
		case u.Scheme != "rediss":
			return nil, fmt.Errorf("%s= in its address is for rediss://, which has TLS", name)
		case !filepath.IsAbs(path):
			return nil, fmt.Errorf("%s= in its address: want an absolute path, got %q", name, path)
		}
		files[name] = path
	}
	if query.Has("skip_verify") {
		return nil, errors.New("skip_verify= in its address would trust anybody; give the authority's certificate with ca=FILE")
	}
	if u.Scheme != "rediss" {
		return nil, nil
	}
	u.RawQuery = query.Encode()
	return configTLS(files["ca"], files["cert"], files["key"])
}

// configTLS names no host: each node is verified by the name or address under
// which it is reached.
func configTLS(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca= in its address: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca= in its address: %s has no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("its address has one of cert= and key=, and both are needed")
	}
	if cert == "" {
		return config, nil
	}
	own := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert= and key= in its address: %w", err)
		}
		return &pair, nil
	}
	if _, err := own(); err != nil {
		return nil, err
	}
	// Read for each connection: one that was renewed counts without a restart.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() }
	return config, nil
}

// connectTimeout is what the client library takes where an address says nothing.
const connectTimeout = 5 * time.Second

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTLS makes connections with TLS; nil, which is the library's own way, where
// there is none.
func dialTLS(config *tls.Config, timeout time.Duration) dialFunc {
	if config == nil {
		return nil
	}
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: cmp.Or(timeout, connectTimeout)}, Config: config}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, explainTLS(addr, err)
		}
		return conn, nil
	}
}

// explainTLS says whose certificate was refused, and what to set.
func explainTLS(addr string, err error) error {
	refused, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		return fmt.Errorf("reach %s over TLS: %w", addr, err)
	}
	shown := refused.UnverifiedCertificates[0]
	advice := "look at the certificate"
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		advice = "if that is your authority, name its certificate with ca=FILE in redis_url"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		advice = "let redis_url, the Sentinel or the Cluster name the host as the certificate does, or issue one for this name"
	}
	return fmt.Errorf("%s shows a certificate of %q, issued by %q, that is not trusted: %w; %s", addr, shown.Subject, shown.Issuer, err, advice)
}
