package queuetest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// StartCluster starts a Cluster of so many nodes, each with its part of the slots.
func StartCluster(t testing.TB, nodes int, args ...string) []*Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const slots = 16384
	var all []*Redis
	var first []any // of the nodes: where the others meet it
	for i := range nodes {
		bus := FreePort(t) // the usual one, ten thousand further, is often none
		r := StartRedis(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-announce-ip", "127.0.0.1"}, args...)...)
		all = append(all, r)
		c := r.Client()
		defer c.Close() //nolint:errcheck // opened to look at
		err := c.ClusterAddSlotsRange(ctx, i*slots/nodes, (i+1)*slots/nodes-1).Err()
		if i == 0 {
			first = []any{"cluster", "meet", "127.0.0.1", r.port, bus}
		} else if err == nil {
			err = c.Do(ctx, first...).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range all {
		r.awaitCluster(ctx, nodes)
	}
	return all
}

// awaitCluster waits until a node sees all of its Cluster.
func (r *Redis) awaitCluster(ctx context.Context, nodes int) {
	r.t.Helper()
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	await(ctx, r.t, fmt.Sprintf("cluster_known_nodes:%d\r", nodes), func() string { return c.ClusterInfo(ctx).Val() })
	await(ctx, r.t, "cluster_state:ok", func() string { return c.ClusterInfo(ctx).Val() })
}
