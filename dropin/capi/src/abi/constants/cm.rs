//! Constants of librdmacm and of path records. The values are those of rdma-core 44.
//! C enums are `u32` here.

use super::constants;

constants! {
    rdma_cm_event_type: u32 {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        RDMA_CM_EVENT_UNREACHABLE = 7,
        RDMA_CM_EVENT_REJECTED = 8,
        RDMA_CM_EVENT_ESTABLISHED = 9,
        RDMA_CM_EVENT_DISCONNECTED = 10,
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        RDMA_CM_EVENT_MULTICAST_JOIN = 12,
        RDMA_CM_EVENT_MULTICAST_ERROR = 13,
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }
    rdma_port_space: u32 {
        RDMA_PS_IPOIB = 2,
        RDMA_PS_TCP = 0x106,
        RDMA_PS_UDP = 0x111,
        RDMA_PS_IB = 0x13f,
    }
    rdma_conn_param_limits: u32 {
        RDMA_MAX_RESP_RES = 255,
        RDMA_MAX_INIT_DEPTH = 255,
    }
    rdma_cm_join_mc_attr_mask: u32 {
        RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
        RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2,
    }
    rdma_cm_mc_join_flags: u32 {
        RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1,
        RDMA_MC_JOIN_FLAG_RESERVED = 2,
    }
    rdma_option_level: u32 {
        RDMA_OPTION_ID = 0,
        RDMA_OPTION_IB = 1,
    }
    rdma_option_id: u32 {
        RDMA_OPTION_ID_TOS = 0,
        RDMA_OPTION_ID_REUSEADDR = 1,
        RDMA_OPTION_ID_AFONLY = 2,
        RDMA_OPTION_ID_ACK_TIMEOUT = 3,
    }
    rdma_option_ib: u32 {
        RDMA_OPTION_IB_PATH = 1,
    }
    rdma_addrinfo_flags: u32 {
        RAI_PASSIVE = 1,
        RAI_NUMERICHOST = 2,
        RAI_NOROUTE = 4,
        RAI_FAMILY = 8,
    }
    rdma_qkey: u32 {
        RDMA_UDP_QKEY = 0x1234567,
    }
    rdma_ib_service_id: u64 {
        RDMA_IB_IP_PS_MASK = 0xFFFF_FFFF_FFFF_0000,
        RDMA_IB_IP_PORT_MASK = 0xFFFF,
        RDMA_IB_IP_PS_TCP = 0x1060000,
        RDMA_IB_IP_PS_UDP = 0x1110000,
        RDMA_IB_PS_IB = 0x13f0000,
    }
    ibv_path_record: u32 {
        IBV_PATH_RECORD_REVERSIBLE = 128,
    }
    ibv_path_data_flags: u32 {
        IBV_PATH_FLAG_GMP = 1,
        IBV_PATH_FLAG_PRIMARY = 2,
        IBV_PATH_FLAG_ALTERNATE = 4,
        IBV_PATH_FLAG_OUTBOUND = 8,
        IBV_PATH_FLAG_INBOUND = 16,
        IBV_PATH_FLAG_INBOUND_REVERSE = 32,
        IBV_PATH_FLAG_BIDIRECTIONAL = 40,
    }
}
