// libFuzzer target: any text as what programs on other hosts print, the first byte choosing the
// reader: an agent over ssh and the noise of login scripts, and run tokens. A value, nothing, or
// one UserError; what an agent's line holds is written so that it reads back the same.
#include <cstdlib>

#include "launcher/base/errors.h"
#include "launcher/hosts/agent_job.h"
#include "launcher/hosts/host_inspection.h"
#include "launcher/hosts/join_ticket.h"
#include "tests/fuzz/examples.h"

namespace hosts = strait::hosts;

namespace {

void read_greeting(const std::string& line) {
  const auto greeting = hosts::greeting_from(line);
  if (!greeting) return;
  hosts::clock_warning("host", greeting->clock, 1);
  const std::string again = to_line(*greeting);
  if (to_line(hosts::greeting_from(again).value()) != again) std::abort();
}

void read_answer(const std::string& line) {
  const auto answer = hosts::answer_from(line);
  if (answer && to_line(hosts::answer_from(to_line(*answer)).value()) != to_line(*answer)) {
    std::abort();
  }
}

void read_inspection(const std::string& line) {
  const auto inspection = hosts::inspection_from(line);
  if (inspection &&
      to_line(hosts::inspection_from(to_line(*inspection)).value()) != to_line(*inspection)) {
    std::abort();
  }
}

void read_request(const std::string& text) {
  const auto request = hosts::inspection_request_from(text);
  if (request && !hosts::inspection_request_from(to_text(*request))) std::abort();
}

void read_ticket(const std::string& text) {
  const std::string again = to_text(hosts::parse_join_ticket(text));
  if (to_text(hosts::parse_join_ticket(again)) != again) std::abort();
}

constexpr void (*kReaders[])(const std::string&) = {read_greeting, read_answer, read_inspection,
                                                    read_request, read_ticket};

}  // namespace

std::vector<std::string> examples() {
  hosts::HostInspection inspection;
  inspection.facts.gpus = {1};
  inspection.facts.addresses = {"10.0.0.1"};
  inspection.busy_ports = {1};
  inspection.devices = {{true, "cpu"}};
  return {std::string(1, '\0') + "motd " + to_line(hosts::AgentGreeting{}),
          "\1" + to_line(hosts::AgentAnswer{}), "\2" + to_line(inspection),
          "\3" + to_text(hosts::InspectionRequest{}), "\4" + to_text(hosts::JoinTicket{})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const void* rest = data + 1;
  try {
    kReaders[data[0] % std::size(kReaders)]({static_cast<const char*>(rest), size - 1});
  } catch (const strait::base::UserError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}
