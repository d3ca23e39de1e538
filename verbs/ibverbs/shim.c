//go:build linux && cgo

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RESULT(call) ((call) ? errno : 0)

// What rdma-core has since version 45. The values and the place behind wr_atomic_write are part of its binary interface, so headers of
// version 44 serve to build a program that flushes with a newer library. A library that does not know the flags refuses
// to create the queue pair, so the function is never looked for where it is not.
enum {
	QP_EX_WITH_FLUSH = 1 << 11,
	QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
	FLUSH_GLOBAL = 1,
	FLUSH_PERSISTENT = 2,
	FLUSH_RANGE = 0,
};

struct flush_qp_ex {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level);
};

enum { FLUSH_AT = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void (*)(void)) };

static void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t len, uint8_t type)
{
	__typeof__(((struct flush_qp_ex *)0)->wr_flush) f;

	memcpy(&f, (char *)qp + FLUSH_AT, sizeof f);
	f(qp, rkey, addr, len, type, FLUSH_RANGE);
}

int shim_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return RESULT(flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0);
}

struct shim_pointer shim_open(const char *name)
{
	struct shim_pointer r = {NULL, ENODEV};
	struct ibv_device **list;
	int i, n;

	list = ibv_get_device_list(&n);
	if (!list) {
		r.err = errno;
		return r;
	}
	for (i = 0; i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) != 0)
			continue;
		errno = 0;
		r.p = ibv_open_device(list[i]);
		r.err = r.p ? 0 : errno ? errno : EIO;
		break;
	}
	ibv_free_device_list(list);
	return r;
}

int shim_query(struct ibv_context *c, struct shim_caps *out)
{
	struct ibv_device_attr_ex a;
	int err;

	memset(&a, 0, sizeof a);
	err = ibv_query_device_ex(c, NULL, &a);
	if (err)
		return err;
	out->flags = a.device_cap_flags_ex;
	out->odp = a.odp_caps.general_caps;
	out->odp_rc = a.odp_caps.per_transport_caps.rc_odp_caps;
	out->max_mr_size = a.orig_attr.max_mr_size;
	out->vendor = a.orig_attr.vendor_id;
	out->max_qp_rd_atom = a.orig_attr.max_qp_rd_atom;
	out->max_qp_init_rd_atom = a.orig_attr.max_qp_init_rd_atom;
	out->max_cqe = a.orig_attr.max_cqe;
	out->max_qp_wr = a.orig_attr.max_qp_wr;
	return 0;
}

int shim_port(struct ibv_context *c, int port, int *active, int *ethernet)
{
	struct ibv_port_attr a;
	int err = ibv_query_port(c, port, &a);

	if (err)
		return err;
	*active = a.state == IBV_PORT_ACTIVE;
	*ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET;
	return 0;
}

// shim_gids returns the number of entries of the GID table of a port that are in use, max at most, or an errno, negative.
int shim_gids(struct ibv_context *c, int port, struct shim_gid *out, int max)
{
	struct ibv_gid_entry *e = calloc(max, sizeof *e);
	ssize_t i, n;
	int used = 0;

	if (!e)
		return -ENOMEM;
	n = ibv_query_gid_table(c, e, max, 0);
	for (i = 0; i < n; i++) {
		if ((int)e[i].port_num != port)
			continue;
		memcpy(out[used].addr, e[i].gid.raw, sizeof out[used].addr);
		out[used].index = e[i].gid_index;
		out[used].v2 = e[i].gid_type == IBV_GID_TYPE_ROCE_V2;
		used++;
	}
	free(e);
	return n < 0 ? n : used;
}

// shim_async takes one event, without waiting: EAGAIN if there is none. The event is acknowledged here, because nothing
// may be destroyed while one of its events is not. So the queue pair or completion queue of an event may be gone when the caller looks for it;
// the number of a queue pair is not used again so soon, that of a completion queue never.
int shim_async(struct ibv_context *c, struct shim_async_event *out)
{
	struct ibv_async_event e;

	if (ibv_get_async_event(c, &e))
		return errno;
	memset(out, 0, sizeof *out);
	out->type = e.event_type;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		out->qpn = e.element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		out->cq = (uintptr_t)e.element.cq->cq_context;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		out->port = e.element.port_num;
		break;
	default:
		break;
	}
	ibv_ack_async_event(&e);
	return 0;
}

struct shim_pointer shim_pd(struct ibv_context *c)
{
	struct shim_pointer r;

	errno = 0;
	r.p = ibv_alloc_pd(c);
	r.err = r.p ? 0 : errno ? errno : ENOMEM;
	return r;
}

struct shim_pointer shim_reg(struct ibv_pd *pd, uintptr_t addr, size_t len, int access)
{
	struct shim_pointer r;

	errno = 0;
	r.p = ibv_reg_mr(pd, (void *)addr, len, access);
	r.err = r.p ? 0 : errno ? errno : ENOMEM;
	return r;
}

// shim_prefetch asks for the pages of a region that is not pinned, with write for storing to them too, which a region without the right of local
// writing is refused. It is advice: the device faults in what is missing.
int shim_prefetch(struct ibv_pd *pd, struct ibv_mr *mr, int write)
{
	const enum ib_uverbs_advise_mr_advice advice = write ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE : IBV_ADVISE_MR_ADVICE_PREFETCH;
	const uint64_t step = 1U << 30;
	struct ibv_sge s;
	uint64_t at;
	int err;

	for (at = 0; at < mr->length; at += step) {
		s.addr = (uintptr_t)mr->addr + at;
		s.length = mr->length - at < step ? mr->length - at : step;
		s.lkey = mr->lkey;
		err = ibv_advise_mr(pd, advice, 0, &s, 1);
		if (err)
			return err;
	}
	return 0;
}

// shim_cq makes a completion queue, whose number its asynchronous events bring back.
struct shim_pointer shim_cq(struct ibv_context *c, int depth, uintptr_t number)
{
	struct shim_pointer r = {NULL, ENOMEM};
	struct shim_cq *q = calloc(1, sizeof *q);

	if (!q)
		return r;
	errno = 0;
	q->channel = ibv_create_comp_channel(c);
	if (q->channel)
		q->cq = ibv_create_cq(c, depth, (void *)number, q->channel, 0);
	if (!q->cq || shim_nonblock(q->channel->fd)) {
		r.err = errno ? errno : ENOMEM;
		shim_cq_destroy(q);
		return r;
	}
	r.p = q;
	r.err = 0;
	return r;
}

int shim_cq_destroy(struct shim_cq *q)
{
	int err = 0;

	if (q->cq) {
		if (q->events)
			ibv_ack_cq_events(q->cq, q->events);
		q->events = 0;
		err = ibv_destroy_cq(q->cq);
	}
	if (q->channel && !err)
		err = ibv_destroy_comp_channel(q->channel);
	if (!err)
		free(q);
	return err;
}

// shim_poll returns the number of completions in wc, or an errno, negative. It and the two that post get addresses as numbers: a pointer to
// what holds pointers is checked by Go's runtime in each call, which takes a tenth of the time of a poll.
int shim_poll(uintptr_t cq)
{
	struct shim_cq *q = (struct shim_cq *)cq;
	int i, n = ibv_poll_cq(q->cq, SHIM_POLL, q->raw);

	if (n < 0)
		return -EIO;
	for (i = 0; i < n; i++) {
		q->wc[i].id = q->raw[i].wr_id;
		q->wc[i].status = q->raw[i].status;
		q->wc[i].vendor = q->raw[i].vendor_err;
		q->wc[i].len = q->raw[i].byte_len;
	}
	return n;
}

int shim_arm(struct shim_cq *q) { return ibv_req_notify_cq(q->cq, 0); }

// shim_cq_event takes one event: EAGAIN if there is none. Acknowledging takes a lock, so events are acknowledged in batches.
int shim_cq_event(struct shim_cq *q)
{
	enum { batch = 1024 };
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(q->channel, &cq, &context))
		return errno;
	if (++q->events == batch) {
		ibv_ack_cq_events(q->cq, batch);
		q->events = 0;
	}
	return 0;
}

static void qp_free(struct shim_qp *q)
{
	free(q->send);
	free(q->recv);
	free(q->swr);
	free(q->rwr);
	free(q->sge);
	free(q->inl);
	free(q);
}

// create_ex creates a queue pair with the extended interface.
static int create_ex(struct shim_qp *q, struct ibv_pd *pd, const struct ibv_qp_init_attr *plain, const struct shim_qp_attr *a)
{
	struct ibv_qp_init_attr_ex x;

	memset(&x, 0, sizeof x);
	x.send_cq = plain->send_cq;
	x.recv_cq = plain->recv_cq;
	x.cap = plain->cap;
	x.qp_type = plain->qp_type;
	x.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	x.pd = pd;
	x.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND;
	if (a->flush)
		x.send_ops_flags |= QP_EX_WITH_FLUSH;
	if (a->atomic_write)
		x.send_ops_flags |= QP_EX_WITH_ATOMIC_WRITE;
	errno = 0;
	q->qp = ibv_create_qp_ex(pd->context, &x);
	if (!q->qp)
		return errno ? errno : EINVAL;
	q->ex = ibv_qp_to_qp_ex(q->qp);
	q->max_inline = x.cap.max_inline_data;
	return 0;
}

static int create_plain(struct shim_qp *q, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	errno = 0;
	q->qp = ibv_create_qp(pd, a);
	if (!q->qp)
		return errno ? errno : EINVAL;
	q->max_inline = a->cap.max_inline_data;
	return 0;
}

// to_init makes the queue pair take receives.
static int to_init(struct shim_qp *q, int port, uint32_t access)
{
	struct ibv_qp_attr a;
	int mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;

	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_INIT;
	a.qp_access_flags = access;
	if (q->qp->context->device->transport_type != IBV_TRANSPORT_IWARP) {
		a.port_num = port;
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	}
	return ibv_modify_qp(q->qp, &a, mask);
}

struct shim_pointer shim_qp(struct ibv_pd *pd, const struct shim_qp_attr *a)
{
	struct shim_pointer r = {NULL, ENOMEM};
	struct ibv_qp_init_attr x;
	struct shim_qp *q = calloc(1, sizeof *q);
	size_t sends = a->send_depth, recvs = a->recv_depth;

	if (!q)
		return r;
	memset(&x, 0, sizeof x);
	x.send_cq = a->scq;
	x.recv_cq = a->rcq;
	x.qp_type = IBV_QPT_RC;
	x.cap.max_send_wr = sends ? sends : 1;
	x.cap.max_recv_wr = recvs ? recvs : 1;
	x.cap.max_send_sge = 1;
	x.cap.max_recv_sge = 1;
	x.cap.max_inline_data = a->max_inline;
	r.err = a->flush || a->atomic_write ? create_ex(q, pd, &x, a) : create_plain(q, pd, &x);
	if (r.err) {
		free(q);
		return r;
	}
	q->one_sge = pd->context->device->transport_type == IBV_TRANSPORT_IWARP;
	q->max_inline = q->max_inline < a->max_inline ? q->max_inline : a->max_inline;
	q->send = calloc(sends + 1, sizeof *q->send);
	q->recv = calloc(recvs + 1, sizeof *q->recv);
	q->swr = calloc(sends + 1, sizeof *q->swr);
	q->rwr = calloc(recvs + 1, sizeof *q->rwr);
	q->sge = calloc((sends > recvs ? sends : recvs) + 1, sizeof *q->sge);
	q->inl = calloc(sends + 1, q->max_inline + 1);
	if (!q->send || !q->recv || !q->swr || !q->rwr || !q->sge || !q->inl)
		r.err = ENOMEM;
	else
		r.err = to_init(q, a->port, a->access);
	if (r.err) {
		ibv_destroy_qp(q->qp);
		qp_free(q);
		return r;
	}
	r.p = q;
	return r;
}

int shim_qp_destroy(struct shim_qp *q)
{
	int err = ibv_destroy_qp(q->qp);

	if (!err)
		qp_free(q);
	return err;
}

int shim_qp_error(struct shim_qp *q)
{
	struct ibv_qp_attr a;

	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_ERR;
	return ibv_modify_qp(q->qp, &a, IBV_QP_STATE);
}

static unsigned int send_flags(const struct shim_send *w)
{
	return (w->flags & SHIM_SIGNALED ? IBV_SEND_SIGNALED : 0) | (w->flags & SHIM_FENCE ? IBV_SEND_FENCE : 0) |
	       (w->flags & SHIM_INLINE ? IBV_SEND_INLINE : 0);
}

static void set_data(struct ibv_qp_ex *x, const struct shim_send *w)
{
	if (w->flags & SHIM_INLINE)
		ibv_wr_set_inline_data(x, (void *)(uintptr_t)w->laddr, w->len);
	else if (w->len)
		ibv_wr_set_sge(x, w->lkey, w->laddr, w->len);
	else
		ibv_wr_set_sge_list(x, 0, NULL);
}

static void put_ex(struct ibv_qp_ex *x, const struct shim_send *w)
{
	x->wr_id = w->id;
	x->wr_flags = send_flags(w);
	switch (w->op) {
	case SHIM_WRITE:
		ibv_wr_rdma_write(x, w->rkey, w->raddr);
		set_data(x, w);
		break;
	case SHIM_READ:
		ibv_wr_rdma_read(x, w->rkey, w->raddr);
		set_data(x, w);
		break;
	case SHIM_SEND:
		ibv_wr_send(x);
		set_data(x, w);
		break;
	case SHIM_FLUSH:
		wr_flush(x, w->rkey, w->raddr, w->len, w->visible ? FLUSH_GLOBAL : FLUSH_PERSISTENT);
		break;
	case SHIM_ATOMIC_WRITE:
		ibv_wr_atomic_write(x, w->rkey, w->raddr, &w->value);
		break;
	}
}

static void put_plain(struct ibv_send_wr *r, struct ibv_sge *s, const struct shim_send *w)
{
	r->wr_id = w->id;
	r->send_flags = send_flags(w);
	r->opcode = w->op == SHIM_WRITE ? IBV_WR_RDMA_WRITE : w->op == SHIM_READ ? IBV_WR_RDMA_READ : IBV_WR_SEND;
	r->wr.rdma.remote_addr = w->raddr;
	r->wr.rdma.rkey = w->rkey;
	s->addr = w->laddr;
	s->length = w->len;
	s->lkey = w->lkey;
	r->sg_list = s;
	r->num_sge = w->len || w->op == SHIM_READ ? 1 : 0; // siw takes the length of a READ from its piece, there or not
}

// shim_post_send posts the first n of q->send. *posted says how many of them the device took when it fails.
int shim_post_send(uintptr_t qp, int n, int *posted)
{
	struct shim_qp *q = (struct shim_qp *)qp;
	struct ibv_send_wr *bad = NULL;
	int i, err;

	*posted = 0;
	if (q->ex) {
		ibv_wr_start(q->ex);
		for (i = 0; i < n; i++)
			put_ex(q->ex, &q->send[i]);
		err = ibv_wr_complete(q->ex);
		*posted = err ? 0 : n;
		return err;
	}
	for (i = 0; i < n; i++) {
		put_plain(&q->swr[i], &q->sge[i], &q->send[i]);
		q->swr[i].next = i + 1 < n ? &q->swr[i + 1] : NULL;
	}
	err = ibv_post_send(q->qp, q->swr, &bad);
	*posted = !err ? n : bad ? bad - q->swr : 0;
	return err;
}

int shim_post_recv(uintptr_t qp, int n, int *posted)
{
	struct shim_qp *q = (struct shim_qp *)qp;
	struct ibv_recv_wr *bad = NULL;
	int i, err;

	for (i = 0; i < n; i++) {
		q->sge[i].addr = q->recv[i].laddr;
		q->sge[i].length = q->recv[i].len;
		q->sge[i].lkey = q->recv[i].lkey;
		q->rwr[i].wr_id = q->recv[i].id;
		q->rwr[i].sg_list = &q->sge[i];
		q->rwr[i].num_sge = q->recv[i].len || q->one_sge ? 1 : 0;
		q->rwr[i].next = i + 1 < n ? &q->rwr[i + 1] : NULL;
	}
	err = ibv_post_recv(q->qp, q->rwr, &bad);
	*posted = !err ? n : bad ? bad - q->rwr : 0;
	return err;
}

struct shim_pointer shim_cm_channel(void)
{
	struct shim_pointer r;

	errno = 0;
	r.p = rdma_create_event_channel();
	r.err = r.p ? 0 : errno ? errno : ENODEV;
	if (r.p && shim_nonblock(((struct rdma_event_channel *)r.p)->fd)) {
		r.err = errno;
		rdma_destroy_event_channel(r.p);
		r.p = NULL;
	}
	return r;
}

// shim_cm_next takes one event: EAGAIN if there is none. It is copied and acknowledged here, because an id cannot be destroyed
// while one of its events is not.
int shim_cm_next(struct rdma_event_channel *c, struct shim_cm_event *out)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(c, &e))
		return errno;
	memset(out, 0, offsetof(struct shim_cm_event, private_data));
	out->id = e->id;
	out->listener = e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? e->listen_id : NULL;
	out->event = e->event;
	out->status = e->status;
	out->responder_resources = e->param.conn.responder_resources;
	out->initiator_depth = e->param.conn.initiator_depth;
	switch (e->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		if (e->param.conn.private_data) {
			out->private_len = e->param.conn.private_data_len;
			memcpy(out->private_data, e->param.conn.private_data, out->private_len);
		}
		break;
	default:
		break;
	}
	rdma_ack_cm_event(e);
	return 0;
}

struct shim_pointer shim_cm_id(struct rdma_event_channel *c)
{
	struct shim_pointer r = {NULL, 0};
	struct rdma_cm_id *id = NULL;

	r.err = RESULT(rdma_create_id(c, &id, NULL, RDMA_PS_TCP));
	r.p = id;
	return r;
}

int shim_cm_bind(struct rdma_cm_id *id, const void *addr)
{
	return RESULT(rdma_bind_addr(id, (struct sockaddr *)addr));
}

int shim_cm_resolve(struct rdma_cm_id *id, const void *src, const void *dst, int ms)
{
	return RESULT(rdma_resolve_addr(id, (struct sockaddr *)src, (struct sockaddr *)dst, ms));
}

int shim_cm_route(struct rdma_cm_id *id, int ms) { return RESULT(rdma_resolve_route(id, ms)); }

int shim_cm_ack_timeout(struct rdma_cm_id *id, uint8_t exponent)
{
	return RESULT(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent, sizeof exponent));
}

// shim_cm_addr copies the local or the peer's address: 28 bytes, the size of sockaddr_in6.
void shim_cm_addr(struct rdma_cm_id *id, int peer, void *out)
{
	memcpy(out, peer ? rdma_get_peer_addr(id) : rdma_get_local_addr(id), sizeof(struct sockaddr_in6));
}

int shim_cm_listen(struct rdma_cm_id *id, int backlog) { return RESULT(rdma_listen(id, backlog)); }

// How often the peer sends again what this side was not ready for, and how long it waits before that: 2.56 ms (IBA, encoding of the RNR NAK timer).
enum { RNR_RETRIES = 6, RNR_TIMER = 16 };

// conn_param has no receiver-not-ready retries: a Send without a receive ends the connection. But an adapter with on-demand paging answers so while
// it waits for a page, too, and then the peer has to try again. A packet is sent again 6 times: rxe takes 7, the most, for ever.
static struct rdma_conn_param conn_param(uint32_t qpn, const void *private_data, uint8_t len, int paging)
{
	struct rdma_conn_param p;

	memset(&p, 0, sizeof p);
	p.private_data = private_data;
	p.private_data_len = len;
	p.retry_count = 6;
	p.rnr_retry_count = paging ? RNR_RETRIES : 0;
	p.qp_num = qpn;
	return p;
}

int shim_cm_connect(struct rdma_cm_id *id, uint32_t qpn, const void *private_data, uint8_t len, uint8_t depth, int paging)
{
	struct rdma_conn_param p = conn_param(qpn, private_data, len, paging);

	p.responder_resources = depth;
	p.initiator_depth = depth;
	return RESULT(rdma_connect(id, &p));
}

int shim_cm_accept(struct rdma_cm_id *id, uint32_t qpn, const void *private_data, uint8_t len, uint8_t responder, uint8_t initiator, int paging)
{
	struct rdma_conn_param p = conn_param(qpn, private_data, len, paging);

	p.responder_resources = responder;
	p.initiator_depth = initiator;
	return RESULT(rdma_accept(id, &p));
}

int shim_cm_reject(struct rdma_cm_id *id, const void *private_data, uint8_t len)
{
	return RESULT(rdma_reject(id, private_data, len));
}

int shim_cm_establish(struct rdma_cm_id *id) { return RESULT(rdma_establish(id)); }
int shim_cm_disconnect(struct rdma_cm_id *id) { return RESULT(rdma_disconnect(id)); }
int shim_cm_destroy(struct rdma_cm_id *id) { return RESULT(rdma_destroy_id(id)); }

// attr_for asks the connection manager for the attributes of a state.
static int attr_for(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *a, int *mask)
{
	memset(a, 0, sizeof *a);
	a->qp_state = state;
	if (rdma_init_qp_attr(id, a, mask))
		return errno;
	// Kernels set bits from 21 on for addresses of RoCE, which ibv_modify_qp does not take.
	*mask &= ~0xe00000;
	return 0;
}

int shim_cm_to_init(struct rdma_cm_id *id, struct shim_qp *q, uint32_t access)
{
	struct ibv_qp_attr a;
	int mask, err = attr_for(id, IBV_QPS_INIT, &a, &mask);

	if (err)
		return err;
	a.qp_access_flags = access;
	return ibv_modify_qp(q->qp, &a, mask | IBV_QP_ACCESS_FLAGS);
}

// shim_cm_gid tells the index of the local GID that the connection manager has chosen.
int shim_cm_gid(struct rdma_cm_id *id, int *index)
{
	struct ibv_qp_attr a;
	int mask, err = attr_for(id, IBV_QPS_RTR, &a, &mask);

	if (!err)
		*index = a.ah_attr.grh.sgid_index;
	return err;
}

int shim_cm_to_rtr(struct rdma_cm_id *id, struct shim_qp *q, uint32_t access, uint8_t responder, int gid)
{
	struct ibv_qp_attr a;
	int mask, err = attr_for(id, IBV_QPS_RTR, &a, &mask);

	if (err)
		return err;
	a.max_dest_rd_atomic = responder;
	a.min_rnr_timer = RNR_TIMER;
	a.qp_access_flags = access;
	if (gid >= 0)
		a.ah_attr.grh.sgid_index = gid;
	return ibv_modify_qp(q->qp, &a, mask | IBV_QP_ACCESS_FLAGS);
}

int shim_cm_to_rts(struct rdma_cm_id *id, struct shim_qp *q, uint8_t initiator)
{
	struct ibv_qp_attr a;
	int mask, err = attr_for(id, IBV_QPS_RTS, &a, &mask);

	if (err)
		return err;
	a.max_rd_atomic = initiator;
	return ibv_modify_qp(q->qp, &a, mask);
}
