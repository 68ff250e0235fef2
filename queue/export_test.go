package queue

import (
	"context"
	"time"
)

// OpenSQLiteAt opens a store whose clock is a test's.
func OpenSQLiteAt(ctx context.Context, dir string, now func() time.Time) (*SQLite, error) {
	return openSQLite(ctx, dir, leaseTime, now)
}

const LeaseTime = leaseTime
