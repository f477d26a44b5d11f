#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "launcher/hosts/join_ticket.h"
#include "tests/launcher/user_error.h"

namespace strait::hosts {
namespace {

using testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

NodeRank rank_in(const Environment& environment, const RankFlags& flags = {}) {
  return node_rank(flags, [&environment](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
  });
}

std::string refusal(const Environment& environment, const RankFlags& flags = {}) {
  return base::user_error(base::ExitCode::bad_input, [&] { rank_in(environment, flags); });
}

struct Case {
  const char* name;
  Environment environment;
  RankFlags flags;
  NodeRank expected;
};

TEST(NodeRank, IsWhatTheEngineSays) {
  const std::vector<Case> cases = {
      {"torchrun",
       {{"RANK", "1"},
        {"WORLD_SIZE", "3"},
        {"MASTER_ADDR", "h0"},
        {"MASTER_PORT", "29500"},
        {"LOCAL_RANK", "0"},
        {"LOCAL_WORLD_SIZE", "1"},
        {"GROUP_RANK", "1"}},
       {},
       {1, 3, "h0", "torchrun"}},
      {"an operator of Kubernetes that sets what torchrun reads",
       {{"PET_NODE_RANK", "2"}, {"PET_NNODES", "3"}, {"PET_MASTER_ADDR", "job-0.job"}},
       {},
       {2, 3, "job-0.job", "torchrun's PET_ variables"}},
      {"Slurm",
       {{"SLURM_PROCID", "2"},
        {"SLURM_NTASKS", "3"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_JOB_NODELIST", "gpu[08-09,12],login1"}},
       {},
       {2, 3, "gpu08", "Slurm"}},
      {"Slurm with one node named alone",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "a1,b[2-3]"}},
       {},
       {0, 2, "a1", "Slurm"}},
      {"mpirun in a Slurm job",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"},
        {"SLURM_JOB_NODELIST", "n0"}},
       {{}, {}, "n7"},
       {1, 2, "n7", "Open MPI"}},
      {"mpirun with an exported address",
       {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "n1"}},
       {},
       {1, 2, "n1", "Open MPI"}},
      {"PMI", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, {{}, {}, "n0"}, {0, 2, "n0", "PMI"}},
      {"an indexed job of Kubernetes",
       {{"JOB_COMPLETION_INDEX", "2"}},
       {{}, 3, "train-0.train"},
       {2, 3, "train-0.train", "Kubernetes"}},
      {"SkyPilot",
       {{"SKYPILOT_NODE_RANK", "1"},
        {"SKYPILOT_NUM_NODES", "2"},
        {"SKYPILOT_NODE_IPS", "10.0.0.7\n10.0.0.8"}},
       {},
       {1, 2, "10.0.0.7", "SkyPilot"}},
      {"dstack",
       {{"DSTACK_NODE_RANK", "1"},
        {"DSTACK_NODES_NUM", "2"},
        {"DSTACK_MASTER_NODE_IP", "10.0.0.7"}},
       {},
       {1, 2, "10.0.0.7", "dstack"}},
      {"flags, whatever the environment says",
       {{"RANK", "5"}, {"WORLD_SIZE", "9"}, {"LOCAL_RANK", "5"}},
       {1, 2, "::1"},
       {1, 2, "::1", "the flags"}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const NodeRank found = rank_in(one.environment, one.flags);
    EXPECT_EQ(found.rank, one.expected.rank);
    EXPECT_EQ(found.nodes, one.expected.nodes);
    EXPECT_EQ(found.first, one.expected.first);
    EXPECT_EQ(found.source, one.expected.source);
  }
}

TEST(NodeRank, SaysWhatIsMissing) {
  EXPECT_THAT(refusal({}), testing::AllOf(HasSubstr("--rank"), HasSubstr("--nodes"),
                                          HasSubstr("--first"), HasSubstr("torchrun, Open MPI")));
  EXPECT_THAT(refusal({}, {1, {}, "h"}),
              testing::AllOf(HasSubstr("lacks --nodes"), testing::Not(HasSubstr("--rank,"))));
  EXPECT_THAT(refusal({{"RANK", "1"}, {"MASTER_ADDR", "h"}}),
              testing::AllOf(HasSubstr("lacks --nodes"), HasSubstr("RANK is set")));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
              testing::AllOf(HasSubstr("lacks --first"), HasSubstr("Open MPI")));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "0"}}),
              testing::AllOf(HasSubstr("--nodes"), HasSubstr("--first"), HasSubstr("Kubernetes")));
}

TEST(NodeRank, RefusesContradictions) {
  const Environment torchrun = {{"RANK", "3"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "h"}};
  EXPECT_THAT(refusal(torchrun), HasSubstr("rank 3 of 3 nodes, according to torchrun"));
  EXPECT_THAT(refusal({{"RANK", "one"}, {"WORLD_SIZE", "3"}}), HasSubstr("RANK is \"one\""));
  EXPECT_THAT(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "3"}}), HasSubstr("RANK is \"-1\""));
  EXPECT_THAT(refusal({}, {0, 0, "h"}), HasSubstr("rank 0 of 0 nodes"));
}

TEST(NodeRank, TakesOneProcessOfANode) {
  EXPECT_THAT(refusal({{"RANK", "8"}, {"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}}),
              testing::AllOf(HasSubstr("LOCAL_WORLD_SIZE is 8"), HasSubstr("--nproc-per-node=1")));
  EXPECT_THAT(refusal({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}}),
              HasSubstr("srun --ntasks-per-node=1"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}),
              HasSubstr("--map-by ppr:1:node"));
}

TEST(AddressOfFirst, IsOneOfThisMachine) {
  const NodeRank node{0, 2, "h0", "torchrun"};
  EXPECT_EQ(address_of_first(node, {"10.0.0.1"}, {"192.0.2.1", "10.0.0.1"}), "10.0.0.1");
  // As /etc/hosts of Debian has it, and where a name is published only when its node is ready.
  EXPECT_EQ(address_of_first(node, {"127.0.1.1"}, {"192.0.2.1"}), "192.0.2.1");
  EXPECT_EQ(address_of_first(node, {}, {"192.0.2.1"}), "192.0.2.1");
  EXPECT_EQ(address_of_first({0, 2, "127.0.0.1", ""}, {"127.0.0.1"}, {"192.0.2.1"}), "127.0.0.1");
  const auto refused = [&node](const std::vector<std::string>& found) {
    return base::user_error(base::ExitCode::bad_input, [&] {
      address_of_first(node, found, {"192.0.2.1", "10.0.0.1"});
    });
  };
  EXPECT_THAT(refused({"10.0.0.9"}),
              testing::AllOf(HasSubstr("rank 0, according to torchrun"), HasSubstr("10.0.0.9"),
                             HasSubstr("another machine")));
  EXPECT_THAT(refused({"127.0.1.1"}), HasSubstr("--first: 192.0.2.1, 10.0.0.1"));
  EXPECT_THAT(refused({}), HasSubstr("--first: 192.0.2.1, 10.0.0.1"));
}

}  // namespace
}  // namespace strait::hosts
