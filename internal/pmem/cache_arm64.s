#include "textflag.h"

// func cacheType() (ctr uint64)
TEXT ·cacheType(SB), NOSPLIT, $0-8
	MRS  CTR_EL0, R0
	MOVD R0, ctr+0(FP)
	RET

// func flushCVAP(p *byte, n uintptr)
TEXT ·flushCVAP(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	MOVD ·lineLen(SB), R2
	ADD  R0, R1, R1
	SUB  $1, R2, R3
	BIC  R3, R0, R0
cvap:
	DC   CVAP, R0
	ADD  R2, R0, R0
	CMP  R1, R0
	BLO  cvap
	DSB  $15 // SY
	RET

// func flushCVAC(p *byte, n uintptr)
TEXT ·flushCVAC(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD n+8(FP), R1
	MOVD ·lineLen(SB), R2
	ADD  R0, R1, R1
	SUB  $1, R2, R3
	BIC  R3, R0, R0
cvac:
	DC   CVAC, R0
	ADD  R2, R0, R0
	CMP  R1, R0
	BLO  cvac
	DSB  $15 // SY
	RET

// func storeFence()
TEXT ·storeFence(SB), NOSPLIT, $0-0
	DSB  $15 // SY
	RET
