package rig

import (
	"bytes"
	"os"
	"path/filepath"
)

// pageCopy is how rxe copies between a packet and pages that it gets on demand, in Linux 7.3: each piece goes to or comes from the start of its page, wherever in
// the page the request points, and all pieces are those of the first page. So a WRITE into a region with on-demand paging destroys what stands at the start of the page.
const pageCopy = `		src = (dir == RXE_TO_MR_OBJ) ? addr : user_va;
		dest = (dir == RXE_TO_MR_OBJ) ? user_va : addr;

		bytes = BIT(umem_odp->page_shift) - offset;
		if (bytes > length)
			bytes = length;

		memcpy(dest, src, bytes);
`

// pageCopyMended copies to the right places.
const pageCopyMended = `		src = (dir == RXE_TO_MR_OBJ) ? addr : user_va + offset;
		dest = (dir == RXE_TO_MR_OBJ) ? user_va + offset : addr;

		bytes = BIT(umem_odp->page_shift) - offset;
		if (bytes > length)
			bytes = length;

		memcpy(dest, src, bytes);
		addr += bytes;
`

// mendRxe corrects that, if this kernel has it.
func mendRxe(dir string) (mended bool, err error) {
	path := filepath.Join(dir, "rxe_odp.c")
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if !bytes.Contains(text, []byte(pageCopy)) {
		return false, nil
	}
	return true, os.WriteFile(path, bytes.Replace(text, []byte(pageCopy), []byte(pageCopyMended), 1), 0o644)
}
