// Reads sysfs files of the adapter by streams and by std::filesystem.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace fs = std::filesystem;

static std::string line(const fs::path &path)
{
	std::ifstream file(path);
	std::string text;
	std::getline(file, text);
	return text;
}

int main()
{
	const fs::path device = "/sys/class/infiniband/verbena0";
	bool listed = false;
	for (const auto &entry : fs::directory_iterator("/sys/class/infiniband"))
		listed |= entry.path().filename() == "verbena0";
	int gids = 0;
	for (const auto &entry : fs::directory_iterator(device / "ports/1/gids"))
		gids += fs::exists(entry.path());
	const bool good = listed && gids == 16 && line(device / "ports/1/state") == "4: ACTIVE" &&
		line(device / "ports/1/counters/port_rcv_data") == "0" &&
		fs::canonical(device / "device") == "/sys/devices/verbena/verbena0" &&
		fs::is_symlink(device) && fs::exists(device / "device/numa_node") &&
		!line(device / "device/local_cpus").empty();
	std::cout << (good ? "all files read" : "a file is wrong") << std::endl;
	return good ? 0 : 1;
}
