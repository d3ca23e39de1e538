#include "textflag.h"

// func cpuidFeatures() (ebx7 uint32)
TEXT ·cpuidFeatures(SB), NOSPLIT, $0-4
	MOVL $0, AX
	MOVL $0, CX
	CPUID
	CMPL AX, $7
	JB   none
	MOVL $7, AX
	MOVL $0, CX
	CPUID
	MOVL BX, ebx7+0(FP)
	RET
none:
	MOVL $0, ebx7+0(FP)
	RET

// func flushCLWB(p *byte, n uintptr)
TEXT ·flushCLWB(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX
	ANDQ $~63, AX
clwb:
	CLWB (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JB   clwb
	RET

// func flushCLFLUSHOPT(p *byte, n uintptr)
TEXT ·flushCLFLUSHOPT(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX
	ANDQ $~63, AX
opt:
	CLFLUSHOPT (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JB   opt
	RET

// func flushCLFLUSH(p *byte, n uintptr)
TEXT ·flushCLFLUSH(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX
	ANDQ $~63, AX
plain:
	CLFLUSH (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JB   plain
	RET

// func storeFence()
TEXT ·storeFence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func streamLines(dst, src *byte, n uintptr)
TEXT ·streamLines(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	ADDQ DI, CX
line:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	CMPQ DI, CX
	JB   line
	RET

// func streamZeroLines(dst *byte, n uintptr)
TEXT ·streamZeroLines(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ n+8(FP), CX
	ADDQ DI, CX
	PXOR X0, X0
zero:
	MOVNTO X0, (DI)
	MOVNTO X0, 16(DI)
	MOVNTO X0, 32(DI)
	MOVNTO X0, 48(DI)
	ADDQ $64, DI
	CMPQ DI, CX
	JB   zero
	RET
