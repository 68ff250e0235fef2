package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// archs are the audit architectures whose system calls the filter knows.
var archs = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}

// x32Bit marks the second set of call numbers that an amd64 kernel may offer.
const x32Bit = 0x40000000

// cutNetwork forbids sockets other than local ones: landlock's own network rules
// know TCP only. io_uring goes too, since it opens sockets without the call.
func cutNetwork() error {
	arch, ok := archs[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("cut the network: no filter for %s", runtime.GOARCH)
	}
	// Offsets are those of struct seccomp_data: nr 0, arch 4, low half of args[0] 16.
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	filter := []unix.SockFilter{
		load(4),
		equal(arch, 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(0),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32Bit, Jt: 5, Jf: 0},
		equal(unix.SYS_IO_URING_SETUP, 4, 0),
		equal(unix.SYS_SOCKET, 0, 2),
		load(16),
		equal(unix.AF_UNIX, 0, 1),
		answer(unix.SECCOMP_RET_ALLOW),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("cut the network: %w", err)
	}
	return nil
}
