// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim} from "../../src/interfaces/Types.sol";
import {CrewMarket} from "./CrewMarket.sol";

/// @notice Every game about a crew's fallen claim, by who has lied and whom the leader accuses in which order. The finder may
/// be anybody's puppet, and a claim may fall though nobody has lied: its leader let it.
contract AttackGamesTest is CrewMarket {
    uint256 private constant ALL = 8; // sets of three members
    uint256 private constant FINDER = 3;
    uint256 private constant REWARD = 50 ether;

    function setUp() external {
        setUpCrew();
    }

    function test_NoCoalitionGainsAndNoHonestMemberLoses() external {
        vm.pauseGasMetering();
        for (uint256 liars; liars < ALL; ++liars) {
            for (uint256 accused; accused < ALL; ++accused) {
                for (uint256 backwards; backwards < 2; ++backwards) {
                    uint256 snapshot = vm.snapshotState();
                    check(liars, accused, play(liars, accused, backwards == 1));
                    vm.revertToState(snapshot);
                }
            }
        }
    }

    /// @return gains Of the three members and of the finder.
    function play(uint256 liars, uint256 accused, bool backwards) private returns (int256[4] memory gains) {
        uint256[4] memory had = worths();
        uint256 supply = token.totalSupply() - vault.undestroyed();
        Claim memory claim = convicted();
        for (uint256 i; i < 3; ++i) {
            uint256 member = backwards ? 2 - i : i;
            if (!has(accused, member)) continue;
            ownCourt.decide(accuse(uint8(member), claim), has(liars, member));
        }
        dissolve();
        crew.finish(invited);
        int256 sum;
        for (uint256 i; i < 4; ++i) {
            gains[i] = int256(worths()[i]) - int256(had[i]);
            sum += gains[i];
        }
        uint256 burnt = supply + vault.undestroyed() - token.totalSupply();
        assertTrue(sum + int256(burnt) == 0, "what all have lost is burnt");
    }

    function check(uint256 liars, uint256 accused, int256[4] memory gains) private pure {
        bool found = liars & accused != 0;
        for (uint256 i = 1; i < 3; ++i) {
            if (!has(liars, i)) assertTrue(gains[i] >= 0, "an honest member is whole");
        }
        for (uint256 set = 1; set < ALL; ++set) {
            int256 sum = gains[FINDER];
            for (uint256 i; i < 3; ++i) {
                if (has(set, i)) sum += gains[i];
            }
            if (has(set, 0)) assertTrue(sum <= 0, "a leader and its puppets");
            if (found && set & liars == liars) assertTrue(sum <= 0, "all who have lied, and their puppet");
        }
        bool honest = !has(liars, 0) && liars != 0 && accused == liars;
        if (honest) assertTrue(gains[0] == -int256(REWARD), "a leader that finds them bears half");
    }

    function worths() private view returns (uint256[4] memory all) {
        for (uint256 i; i < 4; ++i) {
            address who = i == FINDER ? whistle : account(i);
            all[i] = token.balanceOf(who) + free(who);
        }
    }

    function has(uint256 set, uint256 member) private pure returns (bool) {
        return set >> member & 1 == 1;
    }
}
