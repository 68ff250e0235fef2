package queue

import (
	"strings"
	"testing"
)

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		magic   uint32
		refused string
	}{
		{"NFS", 0x6969, "NFS"},
		{"SMB", 0x517b, "SMB"},
		{"SMB 2", 0xfe534d42, "SMB"},
		{"CIFS", 0xff534d42, "CIFS"},
		{"a shared folder of a virtual machine", 0x01021997, "9p"},
		{"ext4", 0xef53, ""},
		{"btrfs", 0x9123683e, ""},
		{"tmpfs", 0x01021994, ""},
		{"overlay", 0x794c7630, ""},
	} {
		err := judgeDisk(c.magic)
		if c.refused == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.refused != "" && (err == nil || !strings.Contains(err.Error(), "network file system ("+c.refused+")")) {
			t.Errorf("%s: %v, want a refusal that names %s", c.name, err, c.refused)
		}
	}
	if err := refuseNetwork(t.TempDir()); err != nil {
		t.Errorf("here: %v", err)
	}
}
