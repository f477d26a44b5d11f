#pragma once

#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::plan {

struct Plan;

// A layout among which "auto" chose, with the settings that it runs fastest with.
struct Layout {
  std::int64_t stages = 1;
  std::int64_t replicas = 1;
  std::vector<std::string> hosts;  // of the processes, by replica, then stage
  double step_seconds = 0;         // forecast, the mean of the run, with the sync of replicas
  std::vector<models::LayerRange> layers;  // of the first chunk of each stage
  std::string schedule;
  std::int64_t depth = 0;
  std::int64_t micro_batch = 0;  // rows
  bool recomputes = false;
  std::string limit;  // what its step takes longest for: "link a > b", "compute of a"
};

// The hosts of a recipe: its list, or this machine.
std::vector<recipe::RecipeHost> hosts_of(const recipe::Recipe& recipe);

// Assigns processes to hosts in the given order. Returns the host index of each process; processes
// are counted by replica, then by stage. A host gets as many processes as it has slots. Hosts
// without slots share the rest evenly, and the first ones get one more. Pure. UserError: fewer
// slots than processes.
std::vector<std::size_t> assign_hosts(const std::vector<recipe::RecipeHost>& hosts,
                                      std::size_t processes);

// Ports that links to the processes of each host are bound to.
std::vector<std::int64_t> link_ports(const Plan& plan);

// GPU memory that each process uses in addition to its tensors: the CUDA context and workspaces of
// libraries.
inline constexpr std::int64_t kGpuContextBytes = std::int64_t{640} << 20;

// What the stages on a GPU of this host need there.
std::int64_t gpu_memory_needed(const Plan& plan, std::size_t host, std::size_t gpu);

// Whether it has that, as far as its memory is known; see check_gpu_memory().
bool fits_gpu_memory(const Plan& plan, std::size_t host);

// UserError: stages that share a GPU of this host need more memory there than it has. It names the
// GPU, these stages and what each needs. Checks nothing if the host has no GPUs or they are not
// known yet. Caches of codecs and copies for checkpoints are in host memory and do not count. Pure.
void check_gpu_memory(const Plan& plan, std::size_t host);

// Host memory that the host's stages need: everything except what is on a GPU. Pure.
std::int64_t host_memory_needed(const Plan& plan, std::size_t host);

// UserError (out_of_memory): a host whose memory the recipe states needs more for its stages,
// off-loaded optimizers and the checkpoints that it holds. The memory of other hosts is known only
// when the run begins. Pure.
void check_host_memory(const Plan& plan);

// UserError (bad_input): hosts.ports has too few for a host's links. Otherwise a process finds no
// free port only after all processes have started and loaded. Pure.
void check_ports(const Plan& plan);

// Threads beyond a host's cores wait for each other, so all compute slower than fewer threads
// would. Hosts that have not reported their cores are not checked. Both functions are pure.

// UserError (bad_input): the recipe gives each process more threads than the host has cores.
void check_threads(const Plan& plan, std::size_t host);
// The same for a run that has begun, whose bits depend on its threads: what keeping them costs.
// Empty: nothing.
std::string thread_warning(const Plan& plan, std::size_t host);

}  // namespace strait::plan
