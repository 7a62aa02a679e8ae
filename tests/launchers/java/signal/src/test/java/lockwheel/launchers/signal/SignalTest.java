// Runs the contract on the fork of Signal.

package lockwheel.launchers.signal;

import lockwheel.launchers.OriginalApiContract;

class SignalTest extends OriginalApiContract {
    @Override
    protected String vendor() {
        return "signal";
    }
}
