//! Constants of devices, ports, addresses and asynchronous events. The values are those of rdma-core 44.
//! C enums are `u32` here, with all bits set where C has -1.

use super::constants;

constants! {
    ibv_node_type: u32 {
        IBV_NODE_UNKNOWN = u32::MAX,
        IBV_NODE_CA = 1,
        IBV_NODE_SWITCH = 2,
        IBV_NODE_ROUTER = 3,
        IBV_NODE_RNIC = 4,
        IBV_NODE_USNIC = 5,
        IBV_NODE_USNIC_UDP = 6,
        IBV_NODE_UNSPECIFIED = 7,
    }
    ibv_transport_type: u32 {
        IBV_TRANSPORT_UNKNOWN = u32::MAX,
        IBV_TRANSPORT_IB = 0,
        IBV_TRANSPORT_IWARP = 1,
        IBV_TRANSPORT_USNIC = 2,
        IBV_TRANSPORT_USNIC_UDP = 3,
        IBV_TRANSPORT_UNSPECIFIED = 4,
    }
    ibv_device_cap_flags: u32 {
        IBV_DEVICE_RESIZE_MAX_WR = 1,
        IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1,
        IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2,
        IBV_DEVICE_RAW_MULTI = 1 << 3,
        IBV_DEVICE_AUTO_PATH_MIG = 1 << 4,
        IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5,
        IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6,
        IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
        IBV_DEVICE_SHUTDOWN_PORT = 1 << 8,
        IBV_DEVICE_INIT_TYPE = 1 << 9,
        IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
        IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
        IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
        IBV_DEVICE_SRQ_RESIZE = 1 << 13,
        IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
        IBV_DEVICE_MEM_WINDOW = 1 << 17,
        IBV_DEVICE_UD_IP_CSUM = 1 << 18,
        IBV_DEVICE_XRC = 1 << 20,
        IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
        IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
        IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
        IBV_DEVICE_RC_IP_CSUM = 1 << 25,
        IBV_DEVICE_RAW_IP_CSUM = 1 << 26,
        IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
    }
    ibv_fork_status: u32 {
        IBV_FORK_DISABLED = 0,
        IBV_FORK_ENABLED = 1,
        IBV_FORK_UNNEEDED = 2,
    }
    ibv_atomic_cap: u32 {
        IBV_ATOMIC_NONE = 0,
        IBV_ATOMIC_HCA = 1,
        IBV_ATOMIC_GLOB = 2,
    }
    ibv_odp_transport_cap_bits: u32 {
        IBV_ODP_SUPPORT_SEND = 1 << 0,
        IBV_ODP_SUPPORT_RECV = 1 << 1,
        IBV_ODP_SUPPORT_WRITE = 1 << 2,
        IBV_ODP_SUPPORT_READ = 1 << 3,
        IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
        IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
    }
    ibv_odp_general_caps: u32 {
        IBV_ODP_SUPPORT = 1 << 0,
        IBV_ODP_SUPPORT_IMPLICIT = 1 << 1,
    }
    ibv_raw_packet_caps: u32 {
        IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
        IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
        IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
        IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
    }
    ibv_tm_cap_flags: u32 {
        IBV_TM_CAP_RC = 1 << 0,
    }
    ibv_pci_atomic_op_size: u32 {
        IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0,
        IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1,
        IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2,
    }
    ibv_mtu: u32 {
        IBV_MTU_256 = 1,
        IBV_MTU_512 = 2,
        IBV_MTU_1024 = 3,
        IBV_MTU_2048 = 4,
        IBV_MTU_4096 = 5,
    }
    ibv_port_state: u32 {
        IBV_PORT_NOP = 0,
        IBV_PORT_DOWN = 1,
        IBV_PORT_INIT = 2,
        IBV_PORT_ARMED = 3,
        IBV_PORT_ACTIVE = 4,
        IBV_PORT_ACTIVE_DEFER = 5,
    }
    ibv_port_attr_link_layer: u32 {
        IBV_LINK_LAYER_UNSPECIFIED = 0,
        IBV_LINK_LAYER_INFINIBAND = 1,
        IBV_LINK_LAYER_ETHERNET = 2,
    }
    ibv_port_cap_flags: u32 {
        IBV_PORT_SM = 1 << 1,
        IBV_PORT_NOTICE_SUP = 1 << 2,
        IBV_PORT_TRAP_SUP = 1 << 3,
        IBV_PORT_OPT_IPD_SUP = 1 << 4,
        IBV_PORT_AUTO_MIGR_SUP = 1 << 5,
        IBV_PORT_SL_MAP_SUP = 1 << 6,
        IBV_PORT_MKEY_NVRAM = 1 << 7,
        IBV_PORT_PKEY_NVRAM = 1 << 8,
        IBV_PORT_LED_INFO_SUP = 1 << 9,
        IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11,
        IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12,
        IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14,
        IBV_PORT_CAP_MASK2_SUP = 1 << 15,
        IBV_PORT_CM_SUP = 1 << 16,
        IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17,
        IBV_PORT_REINIT_SUP = 1 << 18,
        IBV_PORT_DEVICE_MGMT_SUP = 1 << 19,
        IBV_PORT_VENDOR_CLASS_SUP = 1 << 20,
        IBV_PORT_DR_NOTICE_SUP = 1 << 21,
        IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22,
        IBV_PORT_BOOT_MGMT_SUP = 1 << 23,
        IBV_PORT_LINK_LATENCY_SUP = 1 << 24,
        IBV_PORT_CLIENT_REG_SUP = 1 << 25,
        IBV_PORT_IP_BASED_GIDS = 1 << 26,
    }
    ibv_port_cap_flags2: u32 {
        IBV_PORT_SET_NODE_DESC_SUP = 1 << 0,
        IBV_PORT_INFO_EXT_SUP = 1 << 1,
        IBV_PORT_VIRT_SUP = 1 << 2,
        IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3,
        IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4,
        IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5,
        IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10,
    }
    ibv_gid_type: u32 {
        IBV_GID_TYPE_IB = 0,
        IBV_GID_TYPE_ROCE_V1 = 1,
        IBV_GID_TYPE_ROCE_V2 = 2,
    }
    ibv_event_type: u32 {
        IBV_EVENT_CQ_ERR = 0,
        IBV_EVENT_QP_FATAL = 1,
        IBV_EVENT_QP_REQ_ERR = 2,
        IBV_EVENT_QP_ACCESS_ERR = 3,
        IBV_EVENT_COMM_EST = 4,
        IBV_EVENT_SQ_DRAINED = 5,
        IBV_EVENT_PATH_MIG = 6,
        IBV_EVENT_PATH_MIG_ERR = 7,
        IBV_EVENT_DEVICE_FATAL = 8,
        IBV_EVENT_PORT_ACTIVE = 9,
        IBV_EVENT_PORT_ERR = 10,
        IBV_EVENT_LID_CHANGE = 11,
        IBV_EVENT_PKEY_CHANGE = 12,
        IBV_EVENT_SM_CHANGE = 13,
        IBV_EVENT_SRQ_ERR = 14,
        IBV_EVENT_SRQ_LIMIT_REACHED = 15,
        IBV_EVENT_QP_LAST_WQE_REACHED = 16,
        IBV_EVENT_CLIENT_REREGISTER = 17,
        IBV_EVENT_GID_CHANGE = 18,
        IBV_EVENT_WQ_FATAL = 19,
    }
    ibv_rate: u32 {
        IBV_RATE_MAX = 0,
        IBV_RATE_2_5_GBPS = 2,
        IBV_RATE_5_GBPS = 5,
        IBV_RATE_10_GBPS = 3,
        IBV_RATE_20_GBPS = 6,
        IBV_RATE_30_GBPS = 4,
        IBV_RATE_40_GBPS = 7,
        IBV_RATE_60_GBPS = 8,
        IBV_RATE_80_GBPS = 9,
        IBV_RATE_120_GBPS = 10,
        IBV_RATE_14_GBPS = 11,
        IBV_RATE_56_GBPS = 12,
        IBV_RATE_112_GBPS = 13,
        IBV_RATE_168_GBPS = 14,
        IBV_RATE_25_GBPS = 15,
        IBV_RATE_100_GBPS = 16,
        IBV_RATE_200_GBPS = 17,
        IBV_RATE_300_GBPS = 18,
        IBV_RATE_28_GBPS = 19,
        IBV_RATE_50_GBPS = 20,
        IBV_RATE_400_GBPS = 21,
        IBV_RATE_600_GBPS = 22,
        IBV_RATE_800_GBPS = 23,
        IBV_RATE_1200_GBPS = 24,
    }
    ibv_device_name_sizes: u32 {
        IBV_SYSFS_NAME_MAX = 64,
        IBV_SYSFS_PATH_MAX = 0x100,
    }
    ibv_values_mask: u32 {
        IBV_VALUES_MASK_RAW_CLOCK = 1 << 0,
        IBV_VALUES_MASK_RESERVED = 1 << 1,
    }
    ibv_port_attr_flags: u32 {
        IBV_QPF_GRH_REQUIRED = 1,
    }
    ibv_gid_type_sysfs: u32 {
        IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0,
        IBV_GID_TYPE_SYSFS_ROCE_V2 = 1,
    }
    ibv_device_cap_flags_ex: u64 {
        IBV_DEVICE_RAW_SCATTER_FCS = 1 << 34,
        IBV_DEVICE_PCI_WRITE_END_PADDING = 1 << 36,
        IB_UVERBS_DEVICE_FLUSH_GLOBAL = 1 << 38,
        IB_UVERBS_DEVICE_FLUSH_PERSISTENT = 1 << 39,
        IB_UVERBS_DEVICE_ATOMIC_WRITE = 1 << 40,
    }
}
