// The calls of libibverbs and librdmacm that verbs/ibverbs makes, flat: scalars and C memory in, an errno out.
#ifndef PMEMFS_IBVERBS_SHIM_H
#define PMEMFS_IBVERBS_SHIM_H

#if !__has_include(<infiniband/verbs.h>) || !__has_include(<rdma/rdma_cma.h>)
#error "the provider ibverbs needs the packages libibverbs-dev and librdmacm-dev (make deps); CGO_ENABLED=0 builds without it"
#endif
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

enum { SHIM_POLL = 32 }; // completions of one poll

enum { SHIM_SIGNALED = 1, SHIM_FENCE = 2, SHIM_INLINE = 4 };

enum { SHIM_WRITE = 1, SHIM_READ, SHIM_SEND, SHIM_FLUSH = 5, SHIM_ATOMIC_WRITE }; // as verbs.Opcode

// A work request of the send queue. With SHIM_INLINE, laddr is in the inline memory of the queue pair.
struct shim_send {
	uint64_t id, laddr, len, raddr, value;
	uint32_t lkey, rkey;
	uint8_t op, flags, visible;
};

struct shim_recv {
	uint64_t id, laddr;
	uint32_t len, lkey;
};

struct shim_wc {
	uint64_t id;
	uint32_t status, vendor, len;
};

// A queue pair with the memory in which batches are put together. One goroutine at a time uses it to post.
struct shim_qp {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; // NULL: the plain interface
	struct shim_send *send;
	struct shim_recv *recv;
	struct ibv_send_wr *swr;
	struct ibv_recv_wr *rwr;
	struct ibv_sge *sge;
	uint8_t *inl;      // max_inline bytes for each place of the send queue
	uint32_t max_inline;
	int one_sge;       // an empty receive has one empty piece: siw refuses one without
};

struct shim_qp_attr {
	struct ibv_cq *scq, *rcq;
	uint32_t send_depth, recv_depth, max_inline;
	uint8_t flush, atomic_write, port;
	uint32_t access;
};

struct shim_cq {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	unsigned int events; // not yet acknowledged
	struct ibv_wc raw[SHIM_POLL];
	struct shim_wc wc[SHIM_POLL];
};

struct shim_caps {
	uint64_t flags;      // device_cap_flags_ex
	uint64_t odp;        // general_caps
	uint64_t max_mr_size;
	uint32_t odp_rc;     // rc_odp_caps
	uint32_t vendor;
	int max_qp_rd_atom, max_qp_init_rd_atom, max_cqe, max_qp_wr;
};

struct shim_gid {
	uint8_t addr[16];
	int index, v2;
};

struct shim_cm_event {
	struct rdma_cm_id *id;
	struct rdma_cm_id *listener; // of a connection request
	int event, status;
	uint8_t private_len, private_data[255];
	uint8_t responder_resources, initiator_depth;
};

struct shim_async_event {
	int type, port;
	uint32_t qpn;
	uint64_t cq; // number given to shim_cq
};

struct shim_pointer {
	void *p;
	int err;
};

int shim_nonblock(int fd);

struct shim_pointer shim_open(const char *name);
int shim_query(struct ibv_context *c, struct shim_caps *out);
int shim_port(struct ibv_context *c, int port, int *active, int *ethernet);
int shim_gids(struct ibv_context *c, int port, struct shim_gid *out, int max);
int shim_async(struct ibv_context *c, struct shim_async_event *out);

struct shim_pointer shim_pd(struct ibv_context *c);
struct shim_pointer shim_reg(struct ibv_pd *pd, uintptr_t addr, size_t len, int access);
int shim_prefetch(struct ibv_pd *pd, struct ibv_mr *mr, int write);

struct shim_pointer shim_cq(struct ibv_context *c, int depth, uintptr_t number);
int shim_cq_destroy(struct shim_cq *q);
int shim_poll(uintptr_t cq);
int shim_arm(struct shim_cq *q);
int shim_cq_event(struct shim_cq *q);

struct shim_pointer shim_qp(struct ibv_pd *pd, const struct shim_qp_attr *a);
int shim_qp_destroy(struct shim_qp *q);
int shim_qp_error(struct shim_qp *q);
int shim_post_send(uintptr_t qp, int n, int *posted);
int shim_post_recv(uintptr_t qp, int n, int *posted);

struct shim_pointer shim_cm_channel(void);
int shim_cm_next(struct rdma_event_channel *c, struct shim_cm_event *out);
struct shim_pointer shim_cm_id(struct rdma_event_channel *c);
int shim_cm_bind(struct rdma_cm_id *id, const void *addr);
int shim_cm_resolve(struct rdma_cm_id *id, const void *src, const void *dst, int ms);
int shim_cm_route(struct rdma_cm_id *id, int ms);
int shim_cm_ack_timeout(struct rdma_cm_id *id, uint8_t exponent);
void shim_cm_addr(struct rdma_cm_id *id, int peer, void *out);
int shim_cm_listen(struct rdma_cm_id *id, int backlog);
int shim_cm_connect(struct rdma_cm_id *id, uint32_t qpn, const void *private_data, uint8_t len, uint8_t depth, int paging);
int shim_cm_accept(struct rdma_cm_id *id, uint32_t qpn, const void *private_data, uint8_t len, uint8_t responder, uint8_t initiator, int paging);
int shim_cm_reject(struct rdma_cm_id *id, const void *private_data, uint8_t len);
int shim_cm_establish(struct rdma_cm_id *id);
int shim_cm_disconnect(struct rdma_cm_id *id);
int shim_cm_destroy(struct rdma_cm_id *id);
int shim_cm_to_init(struct rdma_cm_id *id, struct shim_qp *q, uint32_t access);
int shim_cm_gid(struct rdma_cm_id *id, int *index);
int shim_cm_to_rtr(struct rdma_cm_id *id, struct shim_qp *q, uint32_t access, uint8_t responder, int gid);
int shim_cm_to_rts(struct rdma_cm_id *id, struct shim_qp *q, uint8_t initiator);

#endif
