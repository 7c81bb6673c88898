//! Recorded output of the programs, and output without a result.

use super::*;

const UCX_LATENCY: &str = "\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
[thread 0]             15229      3.582   170.541  4915.714        0.04       0.00        5864         203
Final:                 20000      3.768    72.337  3760.326        0.11       0.00       13824         266
";

const UCX_BANDWIDTH: &str = "\
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
                        2000      1.900    54.354    54.354     1149.87    1149.87       18398       18398
";

const FABRIC: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64k     2k      =2k      250m        0.09s   3081.93      21.26       0.05
";

const LATENCY: &str = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       2000          4.46           6339.65      1055.28  	       845.87      	443.11 		1610.96 		4189.75
---------------------------------------------------------------------------------------
";

const BANDWIDTH: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      2000             3986.45            1425.11		   0.022802
---------------------------------------------------------------------------------------
";

const IPERF3: &str = r#"{"start": {}, "end": {"streams": [],
    "sum_sent": {"start": 0, "end": 1.000208, "seconds": 1.000208, "bytes": 3959685120, "sender": true},
    "sum_received": {"start": 0, "end": 1.005638, "seconds": 1.005638, "bytes": 3958374400,
                     "bits_per_second": 31489457637.837868, "sender": true}}}"#;

const CALLER: &str = r#"{"messages":21466,"bytes":1406795776,"seconds":0.299615487,"median":3.5e-6,"p99":0.0,"cpu":0.11793575399999999,"carried":1850736640,"grown":1089536,"wakeups":3}"#;
const SERVER: &str = r#"{"messages":0,"bytes":0,"seconds":0.0,"median":0.0,"p99":0.0,"cpu":0.233270484,"carried":0,"grown":1060864,"wakeups":4}"#;

fn read(format: Format, measure: Measure, size: u32, caller: &str) -> Sample {
    let printed = Outputs {
        server: SERVER,
        caller,
        cpu: 2.0,
    };
    let run = Run {
        format,
        measure,
        size,
    };
    run.read(printed).unwrap()
}

fn near(one: f64, other: f64) {
    assert!((one / other - 1.0).abs() < 1e-3, "{one} and {other}");
}

#[test]
fn worker_output_is_parsed() {
    let sample = |measure, size| read(Format::Worker, measure, size, CALLER);
    near(sample(Measure::Latency, 8).value, 3.5);
    let bandwidth = sample(Measure::Bandwidth, 65536);
    near(bandwidth.value, 4.695);
    near(bandwidth.cpu.unwrap(), 0.1898);
    near(sample(Measure::Rate, 64).value, 0.07164);
    near(sample(Measure::Connections, 100).memory.unwrap(), 10895.36);
    near(sample(Measure::Idle, 1).value, 7.0);
}

#[test]
fn iperf3_received_bytes_are_parsed() {
    let sample = read(Format::Iperf3, Measure::Bandwidth, 65536, IPERF3);
    near(sample.value, 3.9362);
    near(sample.cpu.unwrap(), 2.0 / 3.958);
}

#[test]
fn ucx_last_line_is_parsed() {
    near(
        read(Format::Ucx, Measure::Latency, 8, UCX_LATENCY).value,
        3.768,
    );
    let bandwidth = read(Format::Ucx, Measure::Bandwidth, 65536, UCX_BANDWIDTH);
    near(bandwidth.value, 1.2057);
    near(
        read(Format::Ucx, Measure::Rate, 64, UCX_BANDWIDTH).value,
        0.018398,
    );
}

#[test]
fn libfabric_time_per_transfer_is_parsed() {
    near(
        read(Format::Fabric, Measure::Latency, 65536, FABRIC).value,
        21.26,
    );
    near(
        read(Format::Fabric, Measure::Bandwidth, 65536, FABRIC).value,
        3.0826,
    );
    near(
        read(Format::Fabric, Measure::Rate, 65536, FABRIC).value,
        0.04704,
    );
}

#[test]
fn perftest_columns_are_parsed() {
    let latency = read(Format::PerftestLatency, Measure::Latency, 8, LATENCY);
    near(latency.value, 1055.28);
    let bandwidth = |measure| read(Format::PerftestBandwidth, measure, 65536, BANDWIDTH).value;
    near(bandwidth(Measure::Bandwidth), 1.49434);
    near(bandwidth(Measure::Rate), 0.022802);
}

#[test]
fn missing_result_error_names_the_program() {
    for (format, name) in [
        (Format::Worker, "client"),
        (Format::Iperf3, "iperf3"),
        (Format::Ucx, "ucx_perftest"),
        (Format::Fabric, "fi_pingpong"),
        (Format::PerftestLatency, "perftest"),
        (Format::PerftestBandwidth, "perftest"),
    ] {
        for caller in ["", "bytes #bytes usec/xfer", "Final: 1 2 3", "{}"] {
            let run = Run {
                format,
                measure: Measure::Bandwidth,
                size: 8,
            };
            let printed = Outputs {
                server: "",
                caller,
                cpu: 0.0,
            };
            let error = run.read(printed).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
