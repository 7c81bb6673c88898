//! What C programs know: the layouts and constants of `infiniband/verbs.h`, `infiniband/verbs_api.h` and `rdma/rdma_cma.h`.
//! It promises the offsets of every release from rdma-core 28 on, checked when this is compiled and against the headers by a test.
//! It refuses functions: what is done with these is elsewhere.
