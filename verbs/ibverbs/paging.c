//go:build linux && cgo

// Does a device with on-demand paging copy to and from the right places? One queue pair, connected to itself, WRITEs within a region
// of two pages that is not pinned, from the middle of one to the middle of the other.
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, FROM = 1000, TO = PAGE + 2000, LENGTH = 64, PATIENCE_MS = 2000 };

struct trial {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
};

static int connect_to_itself(struct ibv_qp *qp, int port, int gid_index)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (err)
		return err;
	memset(&a, 0, sizeof a);
	if (ibv_query_gid(qp->context, port, gid_index, &a.ah_attr.grh.dgid))
		return errno ? errno : EIO;
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = qp->qp_num;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.is_global = 1;
	a.ah_attr.grh.sgid_index = gid_index;
	a.ah_attr.grh.hop_limit = 1;
	a.ah_attr.port_num = port;
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return err;
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 3;
	a.max_rd_atomic = 1;
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int write_within(struct trial *t)
{
	struct ibv_sge s = {.addr = (uintptr_t)t->mem + FROM, .length = LENGTH, .lkey = t->mr->lkey};
	struct ibv_send_wr *bad, w = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct timespec pause = {0, 1000000};
	struct ibv_wc wc;
	int i, n, err;

	w.wr.rdma.remote_addr = (uintptr_t)t->mem + TO;
	w.wr.rdma.rkey = t->mr->rkey;
	err = ibv_post_send(t->qp, &w, &bad);
	if (err)
		return err;
	for (i = 0; i < PATIENCE_MS; i++) {
		n = ibv_poll_cq(t->cq, 1, &wc);
		if (n < 0)
			return EIO;
		if (n == 1)
			return wc.status == IBV_WC_SUCCESS ? 0 : EIO;
		nanosleep(&pause, NULL);
	}
	return ETIMEDOUT;
}

static int in_place(const uint8_t *mem)
{
	int i, want;

	for (i = 0; i < 2 * PAGE; i++) {
		want = i >= TO && i < TO + LENGTH ? mem[FROM + i - TO] : (i % 251) + 1;
		if (mem[i] != want)
			return 0;
	}
	return 1;
}

static int try_it(struct trial *t, struct ibv_context *c, int port, int gid_index)
{
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
	int i, err;

	errno = ENOMEM;
	if (posix_memalign((void **)&t->mem, PAGE, 2 * PAGE))
		return ENOMEM;
	for (i = 0; i < 2 * PAGE; i++)
		t->mem[i] = (i % 251) + 1;
	if (!(t->pd = ibv_alloc_pd(c)) || !(t->cq = ibv_create_cq(c, 1, NULL, NULL, 0)))
		return errno;
	a.send_cq = a.recv_cq = t->cq;
	if (!(t->qp = ibv_create_qp(t->pd, &a)))
		return errno;
	t->mr = ibv_reg_mr(t->pd, t->mem, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND);
	if (!t->mr)
		return errno;
	err = connect_to_itself(t->qp, port, gid_index);
	if (!err)
		err = write_within(t);
	return err ? err : in_place(t->mem) ? 0 : EILSEQ;
}

// shim_paging returns 0 if the bytes arrived where they belong, EILSEQ if they went elsewhere, or why it cannot be tried.
int shim_paging(struct ibv_context *c, int port, int gid_index)
{
	struct trial t = {0};
	int err = try_it(&t, c, port, gid_index);

	if (t.qp)
		ibv_destroy_qp(t.qp);
	if (t.mr)
		ibv_dereg_mr(t.mr);
	if (t.cq)
		ibv_destroy_cq(t.cq);
	if (t.pd)
		ibv_dealloc_pd(t.pd);
	free(t.mem);
	return err;
}
