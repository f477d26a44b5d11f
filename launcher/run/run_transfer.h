#pragma once

#include "launcher/recipe/plan.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/run/checkpoint_table.h"
#include "launcher/run/control_message.h"
#include "launcher/run/model_questions.h"

namespace strait::run {

// Moves the files of one launch between hosts without a common file system: inputs to the hosts,
// and traces back. One thread. For checkpoints it provides the agent and the hosts.
class RunTransfer {
 public:
  using Host = CheckpointTable::Host;
  using Report = std::function<void(const Event&)>;

  // `model` outlives this object.
  RunTransfer(std::vector<Host> hosts, std::unique_ptr<transfer::TransferAgent> agent,
              const ModelQuestions& model);

  transfer::TransferAgent& agent() { return *agent_; }
  const std::vector<Host>& hosts() const { return hosts_; }
  // Gets the directory of each host that is added from now on.
  void inform(std::shared_ptr<CheckpointTable> table) { table_ = std::move(table); }

  // The host's agent is connected, possibly again; `directory` of the run on that host, `key`: the
  // agent's.
  void add_host(std::size_t host, const std::filesystem::path& directory,
                std::unique_ptr<net::Link> link, const std::string& key);
  // The host's agent has ended. Its link may still wait for it, but nothing more will arrive.
  void remove_host(std::size_t host);

  struct Needs {
    std::vector<std::size_t> hosts;  // whose processes read the files
    std::vector<plan::PluginCopy> plugins;
    std::string resume;                   // the checkpoint to resume from; empty: the run begins
    bool weights = true;                  // include the model's weights if the recipe loads them
    bool begins = true;                   // with the adapter of the recipe, if it has one
    store::Part part = store::Part::all;  // of the checkpoint
  };
  // Sends the files that the processes of these hosts read, unless a host has them at the same
  // path. `poll` is called while this waits, and throws to give up. UserError, StoreError.
  void deliver_inputs(const plan::Plan& plan, const Needs& needs, const std::function<void()>& poll,
                      const Report& report);

  // Sets the paths of the job to where the process finds its files on this host.
  void set_input_paths(plan::StageJob& job, std::size_t host) const;

  // Sets aside checkpoints of later steps on these hosts: they must not be taken for checkpoints of
  // the resumed run. `poll` as in deliver_inputs(). UserError: a host does not answer within a
  // minute although its link is up, because its file system hangs.
  void rewind(const std::vector<std::size_t>& hosts, store::Step step,
              const std::function<void()>& poll);

  // Downloads the trace that each process has written so far into the folder of its log. Returns a
  // message for each missing trace. Does not wait for a host that is `lost`; waits a minute for any
  // other. After inform(), from any thread, but from one at a time.
  std::vector<std::string> download_traces(const plan::Plan& plan, const std::filesystem::path& run,
                                           const std::function<bool()>& give_up,
                                           const std::function<bool(std::size_t)>& lost);

 private:
  struct Delivery {
    std::size_t host = 0;
    transfer::NeededGroup group;
    std::vector<transfer::ChunkTable> tables;                     // of its files
    std::vector<std::future<transfer::ChunkTable>> tables_there;  // of the files on the host
  };

  std::vector<Delivery> needed_deliveries(const plan::Plan& plan, const Needs& needs,
                                          const std::function<void()>& poll);
  std::uint64_t to_send_ = 0;  // of all deliveries so far, from the launcher; hosts may have a part
  bool is_present(Delivery& delivery, const std::function<void()>& poll);
  std::vector<std::future<std::uint64_t>> start_fetches(std::vector<Delivery> deliveries,
                                                        const std::function<void()>& poll);
  std::filesystem::path folder_of(std::size_t host, const transfer::NeededGroup& group) const;
  // Another host that has or fetches these chunks; nullopt: none, or the chunks are too few.
  std::optional<net::ProcessName> source_for(std::size_t host, const transfer::ChunkTable& table,
                                             const transfer::ChunkSet& chunks) const;
  void forget_holder(std::size_t host);

  const ModelQuestions& model_;
  std::vector<Host> hosts_;
  std::unique_ptr<transfer::TransferAgent> agent_;
  // Folders of the groups that were delivered, by host.
  std::vector<std::map<transfer::NeededGroup::Kind, std::filesystem::path>> folders_;
  // Hosts that have or fetch chunks of a content, by its id. Each further host fetches from the
  // last one, so that they form a chain in which each uplink carries the content once.
  struct Holder {
    std::size_t host = 0;
    transfer::ChunkSet chunks;
  };
  std::map<std::string, std::vector<Holder>> holders_;
  std::shared_ptr<CheckpointTable> table_;
};

}  // namespace strait::run
