#pragma once

#include <memory>

#include "launcher/process/backend.h"

namespace strait::process {

// Child processes of this one, on this machine. They inherit no descriptor and no signal setting.
// Stateless; any thread may start, each Process then belongs to one thread.
class LocalBackend : public Backend {
 public:
  std::unique_ptr<Process> start(const Launch& launch) override;
};

}  // namespace strait::process
