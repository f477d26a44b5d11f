#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/hosts/host_facts.h"

// What `strait doctor` asks a host, which then starts nothing.
namespace strait::hosts {

struct InspectionRequest {
  std::string directory;            // where it would keep its files; "~" is its home
  std::pair<int, int> ports{0, 0};  // that it would bind; 0: any
};

struct HostInspection {
  HostFacts facts;
  std::vector<int> busy_ports;  // of those asked for
  std::string objection;        // why it could not keep files there; empty: it could
  base::ExitCode objection_code = base::ExitCode::done;
};

std::string to_text(const InspectionRequest& request);
// Nothing: the text asks for something else.
std::optional<InspectionRequest> inspection_request_from(const std::string& text);

std::string to_line(const HostInspection& look);
std::optional<HostInspection> inspection_from(const std::string& line);

// On the host itself. Leaves nothing behind but the directory.
HostInspection inspect_this_host(const InspectionRequest& request);

// Makes the directory. UserError: that cannot be, nothing can be written there, or the disk is
// full; with the fix.
void check_host_directory(const std::filesystem::path& directory);

}  // namespace strait::hosts
