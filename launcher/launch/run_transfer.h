#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/control/control_message.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/plugin_copy.h"
#include "launcher/transfer/checkpoint_downloader.h"
#include "launcher/launch/model_questions.h"
#include "launcher/transfer/transfer_agent.h"
#include "launcher/plan/stage_job.h"

namespace strait::launch {

// What one launch over hosts without a common file system ships: to them what their processes read,
// and home what they wrote. One thread; committed() and take_troubles() go on while another one has
// somebody join and brings what is needed there.
class RunTransfer {
 public:
  using Host = transfer::CheckpointDownloader::Host;
  using Say = std::function<void(const control::Event&)>;

  // `model` outlives this object.
  RunTransfer(std::vector<Host> hosts, std::unique_ptr<transfer::TransferAgent> porter,
          const ModelQuestions& model);

  // This host's keeper is there, or another one in its place; the run's directory there.
  void join(std::size_t host, const std::filesystem::path& directory,
            std::unique_ptr<net::Link> link);

  struct Needs {
    std::vector<std::size_t> hosts;  // whose processes read it
    std::vector<plan::PluginCopy> plugins;
    std::string resume;   // the checkpoint that they go on from; empty: they begin a run,
    bool weights = true;  // with the model's weights if the recipe says so, or in the middle of it
  };
  // What the processes of hosts read, unless they have it at the same place. `look` is called while
  // it waits, and throws to give up. UserError, StoreError.
  void bring(const plan::Plan& plan, const Needs& needs, const std::function<void()>& look,
             const Say& say);

  // Where on this host the process finds its files.
  void settle(plan::StageJob& job, std::size_t host) const;

  // A checkpoint was committed: its shards come home.
  void committed(const plan::Plan& plan, store::Step step, const std::vector<store::ShardFile>& files);
  // Before the first of them.
  void begin_to_gather(const std::filesystem::path& run, std::int64_t keep);
  std::vector<std::string> take_troubles() { return courier_->take_troubles(); }

  // Waits until the newest committed checkpoint is here, and says so when it takes a while. In
  // words what cannot come; empty: all is here. `give_up` ends the waiting.
  std::string gathered(const std::function<bool()>& give_up, const Say& say);

  // What processes wrote of how they spent their time, next to their logs here. What did not come,
  // a sentence each. Nobody waits for a host that is `lost`.
  std::vector<std::string> bring_traces(const plan::Plan& plan, const std::filesystem::path& run,
                                        const std::function<bool()>& give_up,
                                        const std::function<bool(std::size_t)>& lost);

 private:
  struct Delivery {
    std::size_t host = 0;
    transfer::NeededGroup group;
    std::vector<transfer::ChunkTable> tables;  // of its files
    std::vector<std::future<transfer::ChunkTable>> looks;
  };

  std::vector<Delivery> ask(const plan::Plan& plan, const Needs& needs,
                            const std::function<void()>& look);
  static bool is_there(Delivery& delivery, const std::function<void()>& look);
  void rewind(const std::vector<std::size_t>& hosts, store::Step step,
              const std::function<void()>& look);
  std::vector<std::future<std::uint64_t>> order(std::vector<Delivery> deliveries,
                                                const std::function<void()>& look);
  std::filesystem::path place(std::size_t host, const transfer::NeededGroup& group) const;

  const ModelQuestions& model_;
  std::vector<Host> hosts_;
  std::unique_ptr<transfer::TransferAgent> porter_;
  // Where groups lie that a host did not have.
  std::vector<std::map<transfer::NeededGroup::Kind, std::filesystem::path>> places_;
  std::unique_ptr<transfer::CheckpointDownloader> courier_;
};

}  // namespace strait::launch
