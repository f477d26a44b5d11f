#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace strait::app {

// The pods of a run: an indexed Job, one pod for each host, and the headless service that names
// them. Each pod joins with the token of its index out of a secret. `run_command` starts the
// launcher. Pure.
std::string kubernetes_job(const plan::Plan& plan, const std::string& run_command);

// A run's name in Kubernetes's syntax: lower-case letters, digits and "-", short enough for what is
// appended to it.
std::string kubernetes_name(const std::string& run);

}  // namespace strait::app
