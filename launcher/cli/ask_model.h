#pragma once

#include <cstddef>
#include <filesystem>

#include "launcher/base/errors.h"
#include "launcher/cli/whole_model.h"
#include "launcher/run/inference.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}  // namespace CLI

namespace strait::cli {

// Where a trained model is asked: in this process, or over the stages of its run on its hosts.
enum class Place { automatic, here, hosts };

// The flag --on.
void add_place(CLI::App* verb, Place& place);

// `automatic`: here, unless the run has hosts and the model does not fit into this machine's
// memory.
Place choose_place(const RunCheckpoint& source, Place wanted);

// How many requests keep every stage busy.
std::size_t requests_in_flight(const RunCheckpoint& source, Place place);

// Asks until the client has finished. The exit code of what happened on hosts; its cause is on
// stderr then. UserError, StoreError: the model could not be loaded or the hosts not be used.
base::ExitCode ask_model(const std::filesystem::path& run, const RunCheckpoint& source, Place place,
                         run::InferenceClient& client);

}  // namespace strait::cli
