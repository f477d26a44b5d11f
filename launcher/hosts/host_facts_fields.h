#pragma once

#include "framework/fields/fields.h"
#include "launcher/hosts/host_facts.h"

namespace strait::hosts {

// The fields of an agent's first message and of the answer to `strait doctor`.
void describe(auto& f, fields::Is<HostFacts> auto& m) {
  f("host_name", m.host_name), f("build", m.build), f("cores", m.cores);
  f("processor", m.processor), f("memory", m.memory), f("gpus", m.gpus);
  f("free_disk", m.free_disk), f("clock", m.clock);
  f("directory", m.directory), f("addresses", m.addresses);
  f("address", m.address), f("launcher", m.launcher);
}

}  // namespace strait::hosts
