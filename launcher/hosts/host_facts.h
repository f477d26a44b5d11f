#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "framework/fields/fields.h"

namespace strait::hosts {

// What a host reports about itself when its agent has started.
struct HostFacts {
  std::string host_name;               // as it names itself
  std::string build;                   // of the programs there
  std::int64_t cores = 0;              // that processes there may use
  std::string processor;               // instruction set; equal ones give equal bits
  std::int64_t memory = 0;             // bytes
  std::vector<std::int64_t> gpus;      // bytes of each one that its stages can use
  std::int64_t free_disk = 0;          // bytes, where it keeps its files
  std::int64_t clock = 0;              // seconds since 1970, by its own clock
  std::string directory;               // where it keeps its files, as an absolute path
  std::vector<std::string> addresses;  // of its interfaces, without loopback and link-local ones
  std::string address;                 // the one it reaches the launcher from
  std::string launcher;                // what it reaches the launcher at
};

// The facts of this machine; `directory` exists. `towards`: an endpoint or address of the launcher.
HostFacts facts_of_this_host(const std::filesystem::path& directory, const std::string& towards);

// The address from which this machine would send to another one; empty: there is no route. Sends
// nothing.
std::string own_address_towards(const std::string& address);

// The addresses of a name; empty: it has none now.
std::vector<std::string> addresses_of(const std::string& name);

bool is_loopback(const std::string& address);

// Whether the address is in `own` or is a loopback address.
bool is_own(const std::string& address, const std::vector<std::string>& own);

// Which interface of this machine has the address; empty: none.
std::string interface_of(const std::string& address);

// The addresses of all interfaces that are up, without loopback and link-local ones, IPv4 first.
std::vector<std::string> own_addresses();

// The fields of an agent's first message and of the answer to `strait doctor`.
void describe(auto& f, fields::Is<HostFacts> auto& m) {
  f("host_name", m.host_name), f("build", m.build), f("cores", m.cores);
  f("processor", m.processor), f("memory", m.memory), f("gpus", m.gpus);
  f("free_disk", m.free_disk), f("clock", m.clock);
  f("directory", m.directory), f("addresses", m.addresses);
  f("address", m.address), f("launcher", m.launcher);
}

}  // namespace strait::hosts
