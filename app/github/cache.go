package github

import (
	"fmt"

	lru "github.com/hashicorp/golang-lru"
)

// An installation's cache holds so many answers of at most so many bytes: what
// is larger or older is fetched again.
const (
	cacheEntries = 512
	cacheBytes   = 256 << 10
)

// cache is a httpcache.Cache with bounds.
type cache struct{ answers *lru.Cache }

func newCache() (*cache, error) {
	answers, err := lru.New(cacheEntries)
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	return &cache{answers}, nil
}

// Get implements httpcache.Cache.
func (c *cache) Get(key string) ([]byte, bool) {
	v, ok := c.answers.Get(key)
	if !ok {
		return nil, false
	}
	body, ok := v.([]byte)
	return body, ok
}

// Set implements httpcache.Cache.
func (c *cache) Set(key string, answer []byte) {
	if len(answer) > cacheBytes {
		c.answers.Remove(key)
		return
	}
	c.answers.Add(key, answer)
}

// Delete implements httpcache.Cache.
func (c *cache) Delete(key string) { c.answers.Remove(key) }
