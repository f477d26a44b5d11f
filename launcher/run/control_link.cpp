#include "launcher/run/control_link.h"

#include "launcher/base/build_id.h"

namespace strait::run {

net::LinkOptions control_link(net::ProcessName process, net::ProcessName peer,
                              const std::string& peer_key, std::chrono::seconds hold) {
  net::LinkOptions options;
  options.name = "control " + process.text();
  options.peer = peer;
  options.peer_public_key = peer_key;
  options.terms = {{"build", base::build_id()}};
  options.hold = hold;
  return options;
}

}  // namespace strait::run
