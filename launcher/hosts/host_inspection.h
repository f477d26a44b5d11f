#pragma once

#include "launcher/base/errors.h"
#include "launcher/hosts/host_facts.h"

// The request of `strait doctor` to a host, which starts no agent.
namespace strait::hosts {

// Advice about a directory that cannot be used: for a host in the recipe's list, and for a run on
// this machine, which has no list.
inline constexpr const char* kListAnother =
    "name another place under [[hosts.list]]: directory = \"...\"";
inline constexpr const char* kStartElsewhere =
    "start strait in a directory with room that can be written to";

struct InspectionRequest {
  std::string directory;            // for its files; "~" is its home
  std::pair<int, int> ports{0, 0};  // that a run would bind; 0: any
};

struct HostInspection {
  HostFacts facts;
  std::vector<int> busy_ports;  // of the ports in the request
  // The devices for stages: whether each works, and a sentence about it.
  std::vector<std::pair<bool, std::string>> devices;
  std::string objection;  // why it cannot keep files there; empty: it can
  base::ExitCode objection_code = base::ExitCode::done;
  const char* advice = kListAnother;  // if its disk has too little room; not sent
};

std::string to_text(const InspectionRequest& request);
// nullopt: another request.
std::optional<InspectionRequest> inspection_request_from(const std::string& text);

std::string to_line(const HostInspection& inspection);
std::optional<HostInspection> inspection_from(const std::string& line);

// Runs on the host. Creates the directory and nothing else.
HostInspection inspect_this_host(const InspectionRequest& request,
                                 const char* advice = kListAnother);

// Creates the directory. UserError: it cannot be created or written to, or the disk is full.
void check_host_directory(const std::filesystem::path& directory,
                          const char* advice = kListAnother);

}  // namespace strait::hosts
