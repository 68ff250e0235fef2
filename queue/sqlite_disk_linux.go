package queue

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// networkDisks are the file systems on which locks or shared memory do not hold
// between hosts, by the magic number that statfs(2) gives.
var networkDisks = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.V9FS_MAGIC:       "9p",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.NCP_SUPER_MAGIC:  "NCP",
	0x0bd00bd0:            "Lustre",
	0x47504653:            "GPFS",
}

func refuseNetwork(dir string) error {
	var fs unix.Statfs_t
	for {
		err := unix.Statfs(dir, &fs)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("look at its file system: %w", err)
		}
	}
	return judgeDisk(uint32(fs.Type))
}

func judgeDisk(magic uint32) error {
	if name := networkDisks[magic]; name != "" {
		return fmt.Errorf("it lies on a network file system (%s), where its locks do not hold: choose a state directory on a local disk, or use Redis", name)
	}
	return nil
}
